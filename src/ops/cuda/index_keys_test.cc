#include "ops/cuda/index_keys.h"

#include <limits>

#include "ops/cuda/attention_testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using cpu::RandomBatch;
using testing::DeviceArray;
using testing::DeviceRows;
using testing::Machine;

/// Values of many magnitudes, among them zeros, subnormals, infinities and NaN.
std::vector<bf16> random_values(RandomBatch& random, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<bf16> values(static_cast<std::size_t>(count));
  float deviation = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 32 == 0) deviation = std::exp2(static_cast<float>(random.integer(-130, 125)));
    values[i] = random.integer(0, 9) == 0 ? bf16{0} : to_bf16(random.normal(deviation));
    if (random.integer(0, 500) == 0) values[i] = to_bf16(kInfinity);
    if (random.integer(0, 500) == 0) values[i] = bf16{0x7fc0};
  }
  return values;
}

TEST(IndexKeysOnCudaTest, QuantisesAsTheReferenceDoes) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{32}, int64_t{64}, int64_t{96}, int64_t{128}}) {
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{333}}) {
      RandomBatch random(static_cast<unsigned>(dim + rows), 1, 10);
      const std::vector<bf16> x = random_values(random, rows * dim);
      std::vector<uint8_t> codes(static_cast<std::size_t>(rows * dim / 2));
      std::vector<uint8_t> scales(static_cast<std::size_t>(rows * dim / 32));
      ref::quantize_mxfp4(
          {View<uint8_t, 2>(codes.data(), rows, dim / 2),
           View<uint8_t, 2>(scales.data(), rows, dim / 32),
           View<const bf16, 2>(x.data(), rows, dim)},
          {0, rows}
      );
      const DeviceArray<bf16> device_x(x);
      const DeviceArray<uint8_t> device_codes(std::ssize(codes));
      const DeviceArray<uint8_t> device_scales(std::ssize(scales));
      quantize_mxfp4(
          machine.device(),
          {View<uint8_t, 2>(device_codes.data(), rows, dim / 2),
           View<uint8_t, 2>(device_scales.data(), rows, dim / 32),
           View<const bf16, 2>(device_x.data(), rows, dim)}
      );
      EXPECT_EQ(device_codes.read(), codes) << rows << " rows of " << dim;
      EXPECT_EQ(device_scales.read(), scales) << rows << " rows of " << dim;
    }
  }
}

TEST(IndexKeysOnCudaTest, StoresTheReferencesKeys) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{128}, int64_t{64}, int64_t{32}}) {
    for (const int64_t per_block : {int64_t{128}, int64_t{64}}) {
      RandomBatch random(static_cast<unsigned>(dim + per_block), 6, 600);
      std::vector<NewEntry> entries;
      for (int64_t s = 0; s < std::ssize(random.rows().sequences); ++s) {
        for (int64_t j = s; j < 5 * per_block; j += 1 + s)
          entries.push_back({j % 7 == 3 ? -1 : 0, s, j});
      }
      const auto count = std::ssize(entries);
      const std::vector<bf16> k = random_values(random, count * dim);
      const int64_t stride = per_block * (dim / 2 + dim / 32) + 64;
      std::vector<uint8_t> cache(static_cast<std::size_t>(random.num_blocks() * stride), 0xee);
      const DeviceArray<uint8_t> device_cache(cache);
      const DeviceArray<bf16> device_k(k);
      const DeviceArray<NewEntry> device_entries(entries);
      const DeviceRows device_rows(random.rows(), 5);
      IndexKeyStore op;
      op.cache = {
          .base = reinterpret_cast<std::byte*>(cache.data()),
          .block_stride = stride,
          .entries_per_block = per_block,
          .record_bytes = dim / 2};
      op.k = View<const bf16, 2>(k.data(), count, dim);
      op.entries = entries;
      op.rows = random.rows();
      for (int64_t i = 0; i < count; ++i) {
        if (entries[static_cast<std::size_t>(i)].row >= 0) ref::index_key_store(op, {i, i + 1});
      }
      op.cache.base = reinterpret_cast<std::byte*>(device_cache.data());
      op.k.data = device_k.data();
      op.entries = {device_entries.data(), entries.size()};
      op.rows = device_rows.rows();
      index_key_store(machine.device(), op);
      EXPECT_EQ(device_cache.read(), cache) << dim << " channels";
    }
  }
}

TEST(IndexKeysOnCudaTest, RefusesWidthsThatSplitAGroup) {
  DI_NEEDS_GPU();
  Machine machine;
  QuantizeMxFp4 op;
  op.x = View<const bf16, 2>(nullptr, 1, 48);
  EXPECT_ANY_THROW(quantize_mxfp4(machine.device(), op));
}

}  // namespace
}  // namespace di::ops::cuda
