#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;

TEST(DeviceMemoryTest, ReturnsWhatWasCopiedToIt) {
  DI_NEEDS_GPU();
  testing::Machine machine;
  const std::vector<int32_t> values = {1, -2, 3};
  const DeviceArray<int32_t> first(values);
  const DeviceArray<int32_t> second(3);
  device_memory().copy(second.data(), first.data(), 12, machine.stream());
  device_memory().wait(machine.stream());
  EXPECT_EQ(second.read(), values);
}

TEST(DeviceMemoryTest, RefusesWhatNoDeviceHasAndGoesOn) {
  DI_NEEDS_GPU();
  EXPECT_ANY_THROW(device_memory().allocate(int64_t{1} << 50, "a test"));
  EXPECT_NE(device_memory().allocate(1 << 20, "a test"), nullptr);
}

}  // namespace
}  // namespace di::ops::cuda
