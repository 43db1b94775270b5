// Unpacking against the number formats, code by code, and the packed form's accounting.
#include "ops/cuda/packing.h"

#include <vector>

#include "ops/cpu/testing.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using cpu::testing::RawWeight;
using testing::DeviceArray;
using testing::Machine;

/// The matrix as the kernels see it: its product with the identity.
std::vector<float> read_back(const RawWeight& raw) {
  Machine machine;
  const DeviceArray<std::byte> packed(packed_bytes(raw.format, raw.rows, raw.cols));
  for (int64_t row = 0; row < raw.rows; row += kPackRows)
    pack(raw.weight(), {row, std::min(raw.rows, row + kPackRows)}, packed.data());
  std::vector<float> values(static_cast<std::size_t>(raw.rows * raw.cols));
  const Weight w{raw.format, raw.rows, raw.cols, packed.data(), nullptr};
  if (raw.format == WeightFormat::kFp4) {
    std::vector<uint8_t> identity(static_cast<std::size_t>(raw.cols * raw.cols));
    for (int64_t k = 0; k < raw.cols; ++k)
      identity[static_cast<std::size_t>(k * raw.cols + k)] = 0x38;  // one
    const DeviceArray<uint8_t> codes(identity);
    const DeviceArray<uint8_t> scales(
        std::vector<uint8_t>(static_cast<std::size_t>(raw.cols * raw.cols / kScaleGroup), 127)
    );
    DeviceArray<bf16> y(raw.rows * raw.cols);
    linear_q8(
        machine.device(),
        {View<bf16, 2>(y.data(), raw.cols, raw.rows),
         {View<const uint8_t, 2>(codes.data(), raw.cols, raw.cols),
          View<const uint8_t, 2>(scales.data(), raw.cols, raw.cols / kScaleGroup)},
         w}
    );
    const auto found = y.read();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = to_float(found[i]);
    return values;
  }
  std::vector<bf16> identity(static_cast<std::size_t>(raw.cols * raw.cols), bf16{0});
  for (int64_t k = 0; k < raw.cols; ++k)
    identity[static_cast<std::size_t>(k * raw.cols + k)] = to_bf16(1.0f);
  const DeviceArray<bf16> x(identity);
  DeviceArray<float> y(raw.rows * raw.cols);
  linear(
      machine.device(),
      {.y = {},
       .y_f32 = View<float, 2>(y.data(), raw.cols, raw.rows),
       .x = View<const bf16, 2>(x.data(), raw.cols, raw.cols),
       .w = w}
  );
  return y.read();
}

/// The value of an element by the definition of its format.
float value_at(const RawWeight& raw, int64_t row, int64_t col) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(raw.data.data());
  const int64_t at = row * raw.cols + col;
  switch (raw.format) {
    case WeightFormat::kFp4:
      return decode_e2m1(static_cast<uint8_t>(bytes[at / 2] >> 4 * (col % 2) & 15)) *
             decode_e8m0(raw.scales[static_cast<std::size_t>(at / kScaleGroup)]);
    case WeightFormat::kFp8:
      return decode_e4m3(bytes[at]) *
             decode_e8m0(raw.scales[static_cast<std::size_t>(
                 row / kScaleGroup * (raw.cols / kScaleGroup) + col / kScaleGroup
             )]);
    default: return to_float(reinterpret_cast<const bf16*>(bytes)[at]);
  }
}

TEST(CudaPackingTest, EveryCodeAndPlaceComesBackExactly) {
  DI_NEEDS_GPU();
  std::mt19937 random(3);
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4, WeightFormat::kBf16}) {
    for (const int64_t rows : {64, 96, 130}) {
      RawWeight raw = cpu::testing::random_weight(random, format, rows, 192);
      for (std::size_t i = 0; i < raw.scales.size(); ++i)
        raw.scales[i] = static_cast<uint8_t>(60 + i % 100);  // 2^-67 to 2^32
      const auto found = read_back(raw);
      for (int64_t n = 0; n < rows; ++n) {
        for (int64_t k = 0; k < raw.cols; ++k) {
          ASSERT_EQ(found[static_cast<std::size_t>(k * rows + n)], value_at(raw, n, k))
              << n << ", " << k << " of format " << static_cast<int>(format);
        }
      }
    }
  }
}

TEST(CudaPackingTest, BytesAreWholeBlocks) {
  EXPECT_EQ(packed_bytes(WeightFormat::kFp4, 64, 128), 2 * (64 * 64 / 2 + 64 * 2));
  EXPECT_EQ(packed_bytes(WeightFormat::kFp8, 65, 129), 2 * 4 * (64 * 64 + 16));
  EXPECT_EQ(packed_bytes(WeightFormat::kBf16, 1, 1), 2 * 64 * 64 * 2);
  EXPECT_EQ(packed_bytes(WeightFormat::kF32, 24, 20480), 24 * 20480 * 6);
  EXPECT_EQ(packed_bytes(WeightFormat::kF32, 24, 512), 0);
}

}  // namespace
}  // namespace di::ops::cuda
