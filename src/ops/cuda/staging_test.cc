#include "ops/cuda/staging.h"

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "ops/cuda/packing.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;

std::vector<uint8_t> random_bytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(static_cast<std::size_t>(count));
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>(random() >> 8);
  return bytes;
}

const std::byte* bytes_of(const std::vector<uint8_t>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

std::byte* bytes_of(const DeviceArray<uint8_t>& array) {
  return reinterpret_cast<std::byte*>(array.data());
}

TEST(Staging, LoadsRangesOfAnySize) {
  DI_NEEDS_GPU();
  for (const int64_t size : {int64_t{1}, int64_t{4097}, kPinnedBytes, 9 * kPinnedBytes + 13}) {
    const auto values = random_bytes(size, 1);
    const DeviceArray<uint8_t> to(size);
    load(bytes_of(values), size, bytes_of(to));
    EXPECT_EQ(to.read(), values) << size;
  }
  end_loading();
}

TEST(Staging, SourcesMayGoOnceTheyAreReadAndAllIsInPlaceAtTheEnd) {
  DI_NEEDS_GPU();
  constexpr int64_t kSize = 3 * kPinnedBytes + 5;
  constexpr int kRanges = 12;
  const DeviceArray<uint8_t> to(kRanges * kSize);
  begin_loading();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = thread; i < kRanges; i += 3) {
        auto values = random_bytes(kSize, static_cast<uint32_t>(i));
        load(bytes_of(values), kSize, bytes_of(to) + i * kSize);
        std::memset(values.data(), 0, values.size());
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  end_loading();
  const std::vector<uint8_t> all = to.read();
  for (int i = 0; i < kRanges; ++i) {
    const auto values = random_bytes(kSize, static_cast<uint32_t>(i));
    EXPECT_EQ(std::memcmp(all.data() + i * kSize, values.data(), values.size()), 0) << i;
  }
}

TEST(Staging, PacksWhileWeightsAreLoadedAsItDoesAlone) {
  DI_NEEDS_GPU();
  constexpr int64_t kCols = 640, kRows = 64 * 1024;  // 20 MiB of codes: several buffers
  const auto codes = random_bytes(kRows * kCols / 2, 3);
  const std::vector<uint8_t> scales(kRows * kCols / kScaleGroup, 120);
  const Weight raw{WeightFormat::kFp4, kRows, kCols, bytes_of(codes), scales.data()};
  const int64_t bytes = packed_bytes(raw.format, kRows, kCols);
  const DeviceArray<uint8_t> alone(bytes);
  const DeviceArray<uint8_t> together(bytes);
  pack(raw, {0, kRows}, bytes_of(alone));
  begin_loading();
  for (int64_t row = 0; row < kRows; row += 8192)
    pack(raw, {row, row + 8192}, bytes_of(together));
  end_loading();
  EXPECT_EQ(together.read(), alone.read());
}

}  // namespace
}  // namespace di::ops::cuda
