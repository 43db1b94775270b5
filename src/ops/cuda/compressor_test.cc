#include "ops/cuda/compressor.h"

#include "ops/cuda/attention_testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using cpu::RandomBatch;
using testing::DeviceArray;
using testing::DeviceRows;
using testing::Machine;

std::vector<float> floats(RandomBatch& random, int64_t count, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = random.normal(deviation);
  return values;
}

/// A random batch's compressor: this step's rows, and a carry of the rows before.
struct RandomCompressor {
  RandomCompressor(unsigned seed, int64_t compressor_ratio, int64_t channels)
      : random(seed, 6, 300),
        ratio(compressor_ratio),
        dim(channels),
        length(2 * compressor_ratio + 6),
        kv(floats(random, random.count() * dim, 3)),
        score(floats(random, random.count() * dim, 4)),
        carry(floats(random, random.num_slots() * length * 2 * dim, 3)) {
    for (std::size_t s = 0; s < random.rows().sequences.size(); ++s) {
      const SequenceRows& sequence = random.rows().sequences[s];
      for (int64_t i = 0; i < sequence.num_rows; ++i) {
        if ((sequence.start + i + 1) % ratio != 0) continue;
        entries.push_back(
            {.row = random.integer(0, 6) == 0 ? -1 : sequence.first_row + i,
             .sequence = static_cast<int64_t>(s),
             .j = (sequence.start + i + 1) / ratio - 1}
        );
      }
    }
  }
  CarryView carry_at(float* data) const {
    return {
        .base = reinterpret_cast<std::byte*>(data),
        .slot_stride = length * dim * 8,
        .length = length,
        .record_bytes = dim * 8};
  }

  RandomBatch random;
  int64_t ratio, dim, length;
  std::vector<float> kv, score, carry;
  std::vector<NewEntry> entries;
};

TEST(CompressorOnCudaTest, PoolsAsTheReferenceDoes) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t ratio : {1, 2, 4}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      RandomCompressor x(seed, ratio, seed % 2 == 0 ? 512 : 96);
      const auto count = std::ssize(x.entries);
      if (count == 0) continue;
      std::vector<bf16> latent(static_cast<std::size_t>(count * x.dim), bf16{0xffff});
      const DeviceArray<bf16> device_latent(latent);
      const DeviceArray<float> kv(x.kv), score(x.score), carry(x.carry);
      const DeviceArray<NewEntry> entries(x.entries);
      const DeviceRows device_rows(x.random.rows(), 3);
      CompressorPool op;
      op.latent = View<bf16, 2>(latent.data(), count, x.dim);
      op.kv = View<const float, 2>(x.kv.data(), x.random.count(), x.dim);
      op.score = View<const float, 2>(x.score.data(), x.random.count(), x.dim);
      op.carry = x.carry_at(x.carry.data());
      op.ratio = ratio;
      op.entries = x.entries;
      op.rows = x.random.rows();
      for (int64_t i = 0; i < count; ++i) {
        if (x.entries[static_cast<std::size_t>(i)].row >= 0) ref::compressor_pool(op, {i, i + 1});
      }
      op.latent.data = device_latent.data();
      op.kv.data = kv.data();
      op.score.data = score.data();
      op.carry = x.carry_at(carry.data());
      op.entries = {entries.data(), x.entries.size()};
      op.rows = device_rows.rows();
      compressor_pool(machine.device(), op);
      EXPECT_EQ(device_latent.read(), latent) << "ratio " << ratio << " seed " << seed;
    }
  }
}

TEST(CompressorOnCudaTest, CarriesTheNewestRows) {
  DI_NEEDS_GPU();
  Machine machine;
  for (unsigned seed = 0; seed < 8; ++seed) {
    RandomCompressor x(seed, 2, seed % 2 == 0 ? 512 : 96);
    x.length = seed % 3 + 2;
    const DeviceArray<float> kv(x.kv), score(x.score), carry(x.carry);
    const DeviceRows device_rows(x.random.rows(), 3);
    CarryStore op;
    op.carry = x.carry_at(x.carry.data());
    op.kv = View<const float, 2>(x.kv.data(), x.random.count(), x.dim);
    op.score = View<const float, 2>(x.score.data(), x.random.count(), x.dim);
    op.rows = x.random.rows();
    ref::carry_store(op, {0, std::ssize(x.random.rows().sequences)});
    op.carry = x.carry_at(carry.data());
    op.kv.data = kv.data();
    op.score.data = score.data();
    op.rows = device_rows.rows();
    carry_store(machine.device(), op);
    EXPECT_EQ(carry.read(), x.carry) << "seed " << seed;
  }
}

}  // namespace
}  // namespace di::ops::cuda
