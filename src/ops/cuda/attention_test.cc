#include "ops/cuda/attention.h"

#include <cstring>

#include "ops/cuda/attention_testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using testing::AttentionShape;
using testing::DeviceArray;
using testing::DeviceAttention;
using testing::Machine;
using testing::RandomAttention;

std::vector<bf16> by_reference(const SparseAttention& op) {
  std::vector<bf16> o(static_cast<std::size_t>(op.q.size()));
  SparseAttention call = op;
  call.o = View<bf16, 3>(o.data(), op.q.dim(0), op.q.dim(1), op.q.dim(2));
  ref::sparse_attention(call, {0, op.q.dim(0)});
  return o;
}

/// Rows [first, first + count) of a call on the device, as a call of its own.
SparseAttention rows_of(const SparseAttention& op, int64_t first, int64_t count) {
  SparseAttention part = op;
  part.o = View<bf16, 3>(op.o.row(first), count, op.q.dim(1), op.q.dim(2));
  part.q = View<const bf16, 3>(op.q.row(first), count, op.q.dim(1), op.q.dim(2));
  part.selected = View<const int32_t, 2>(op.selected.row(first), count, op.selected.dim(1));
  part.rows.sequence_of = View<const int32_t, 1>(op.rows.sequence_of.data + first, count);
  part.rows.positions = View<const int64_t, 1>(op.rows.positions.data + first, count);
  return part;
}

class AttentionOnCuda : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionOnCuda, AgreesWithTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  const bool exact = GetParam().dim != 512;
  for (unsigned seed = 0; seed < (exact ? 6u : 3u); ++seed) {
    RandomAttention random(seed, GetParam());
    const DeviceAttention device(random);
    sparse_attention(machine.device(), device.op());
    const std::vector<bf16> expected = by_reference(random.op());
    if (exact) {
      EXPECT_EQ(device.output(), expected) << "seed " << seed;
    } else {
      EXPECT_LT(testing::relative_error(device.output(), expected), 2e-3) << "seed " << seed;
    }
  }
}

TEST_P(AttentionOnCuda, SeesTheBlockOfADraft) {
  DI_NEEDS_GPU();
  Machine machine;
  const bool exact = GetParam().dim != 512;
  for (unsigned seed = 60; seed < 66; ++seed) {
    RandomAttention random(seed, GetParam(), 2);
    SparseAttention host = random.op();
    host.block = host.q.dim(0);
    for (const SequenceRows& sequence : host.rows.sequences)
      host.block = std::min(host.block, sequence.num_rows);
    const DeviceAttention device(random);
    SparseAttention call = device.op();
    call.block = host.block;
    sparse_attention(machine.device(), call);
    const double error = testing::relative_error(device.output(), by_reference(host));
    EXPECT_LE(error, exact ? 0 : 2e-3) << "seed " << seed << ", block " << host.block;
  }
}

TEST_P(AttentionOnCuda, GivesARowTheSameBitsAloneAndInAnyBatch) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomAttention random(100, GetParam(), 24);
  const DeviceAttention device(random);
  sparse_attention(machine.device(), device.op());
  const std::vector<bf16> whole = device.output();
  const int64_t rows = device.op().q.dim(0);
  const std::vector<bf16> expected = by_reference(rows_of(random.op(), 0, 2));
  const std::vector<bf16> first_rows(whole.begin(), whole.begin() + std::ssize(expected));
  EXPECT_LT(testing::relative_error(first_rows, expected), 2e-3);
  for (const int64_t step : {int64_t{1}, int64_t{5}, int64_t{16}, rows / 2 + 1}) {
    testing::fill_now(device.op().o.data, 0xff, whole.size() * 2);
    for (int64_t first = 0; first < rows; first += step) {
      const int64_t count = std::min(step, rows - first);
      sparse_attention(machine.device(), rows_of(device.op(), first, count));
    }
    EXPECT_EQ(device.output(), whole) << step << " rows a call of " << rows;
  }
}

TEST_P(AttentionOnCuda, ReadsTheSameBitsFromTheRingAsFromThisStep) {
  DI_NEEDS_GPU();
  Machine machine;
  for (unsigned seed = 0; seed < 8; ++seed) {
    RandomAttention random(200 + seed, GetParam());
    const SparseAttention& host = random.op();
    const SequenceRows chunk = host.rows.sequences[0];
    const DeviceAttention whole(random);
    sparse_attention(machine.device(), whole.op());
    // The chunk's records move into the ring, and its last row comes as a step of its own.
    for (int64_t i = 0; i + 1 < chunk.num_rows; ++i) {
      std::memcpy(
          host.ring.at(chunk.slot, chunk.start + i),
          host.window_records.row(chunk.first_row + i),
          static_cast<std::size_t>(host.ring.record_bytes)
      );
    }
    const DeviceAttention later(random);
    const int64_t last = chunk.first_row + chunk.num_rows - 1;
    SequenceRows alone = chunk;
    alone.first_row = 0;
    alone.num_rows = 1;
    alone.start = chunk.start + chunk.num_rows - 1;
    alone.block_table = nullptr;
    // Only the fields beside the table change: the table is already on the device.
    SparseAttention call = rows_of(later.op(), last, 1);
    call.window_records.data = later.op().window_records.row(last);
    call.window_records.dims[0] = 1;
    auto* sequence = const_cast<SequenceRows*>(later.op().rows.sequences.data());
    testing::copy_now(sequence, &alone, offsetof(SequenceRows, slot));
    sparse_attention(machine.device(), call);
    const std::size_t width = static_cast<std::size_t>(host.q.stride());
    const std::vector<bf16> before = whole.output();
    const std::vector<bf16> after = later.output();
    const std::size_t at = static_cast<std::size_t>(last) * width;
    EXPECT_EQ(std::memcmp(&before[at], &after[at], width * sizeof(bf16)), 0) << "seed " << seed;
  }
}

TEST_P(AttentionOnCuda, KeepsANanInItsRow) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomAttention random(300, GetParam(), 24);
  const DeviceAttention clean(random);
  sparse_attention(machine.device(), clean.op());
  const std::vector<bf16> expected = clean.output();
  const std::size_t width = static_cast<std::size_t>(random.op().q.stride());
  const std::size_t row = static_cast<std::size_t>(random.op().q.dim(0) / 2);
  for (std::size_t i = 0; i < width; ++i)
    random.q()[row * width + i] = bf16{0x7fc0};
  const DeviceAttention spoilt(random);
  sparse_attention(machine.device(), spoilt.op());
  const std::vector<bf16> o = spoilt.output();
  for (std::size_t i = 0; i < o.size(); ++i) {
    if (i / width == row) {
      ASSERT_TRUE(std::isnan(to_float(o[i]))) << i;
    } else {
      ASSERT_EQ(o[i], expected[i]) << i;
    }
  }
}

/// What the first rows of a random call give as a call of their own.
std::vector<bf16> some_rows(Machine& machine, RandomAttention& random, int64_t count) {
  const DeviceAttention device(random);
  sparse_attention(machine.device(), rows_of(device.op(), 0, count));
  std::vector<bf16> o = device.output();
  o.resize(static_cast<std::size_t>(count * random.op().q.stride()));
  return o;
}

bool is_prefix(const std::vector<bf16>& few, const std::vector<bf16>& many) {
  return std::equal(few.begin(), few.end(), many.begin());
}

// These two are small enough for racecheck.
TEST(AttentionOnCudaTest, GivesTheSameBitsFromEveryKernel) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomAttention random(100, {4, 512, 32, 48, 1, KvFormat::kFp4}, 24);
  const std::vector<bf16> many = some_rows(machine, random, 32);
  EXPECT_TRUE(is_prefix(some_rows(machine, random, 16), many));
  EXPECT_TRUE(is_prefix(some_rows(machine, random, 1), many));
}

TEST(AttentionOnCudaTest, GivesTheSameBitsInOneRoundAndInTwo) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomAttention random(100, {4, 512, 128, 512, 1, KvFormat::kFp4}, 24);
  const std::vector<bf16> in_two = some_rows(machine, random, 16);
  EXPECT_TRUE(is_prefix(some_rows(machine, random, 2), in_two));
}

TEST(AttentionOnCudaTest, GivesZerosForAnEmptyList) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{512}, int64_t{64}}) {
    RandomAttention random(5, {4, dim, 32, 40, 1, KvFormat::kFp4});
    const DeviceAttention device(random);
    SparseAttention call = device.op();
    call.window = 0;
    call.compressed = {};
    call.selected = {};
    sparse_attention(machine.device(), call);
    EXPECT_EQ(device.output(), std::vector<bf16>(random.q().size(), bf16{0}));
  }
}

TEST(AttentionOnCudaTest, RefusesSizesThatItHasNoKernelFor) {
  DI_NEEDS_GPU();
  Machine machine;
  SparseAttention call{};
  call.q = View<const bf16, 3>(nullptr, 1, 4, 1024);
  EXPECT_ANY_THROW(sparse_attention(machine.device(), call));
  call.q = View<const bf16, 3>(nullptr, 1, 4, 40);
  EXPECT_ANY_THROW(sparse_attention(machine.device(), call));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    AttentionOnCuda,
    ::testing::Values(
        AttentionShape{64, 512, 128, 512, 1, KvFormat::kFp4},
        AttentionShape{64, 512, 128, 512, 2, KvFormat::kFp8},
        AttentionShape{64, 512, 128, 0, 0, KvFormat::kFp4},
        AttentionShape{4, 512, 32, 48, 1, KvFormat::kFp4},
        AttentionShape{33, 512, 100, 100, 2, KvFormat::kFp4},
        AttentionShape{3, 128, 128, 100, 2, KvFormat::kFp8},
        AttentionShape{4, 128, 64, 130, 2, KvFormat::kFp4},
        AttentionShape{17, 96, 20, 70, 2, KvFormat::kFp8},
        AttentionShape{8, 64, 33, 0, 0, KvFormat::kFp4}
    )
);

}  // namespace
}  // namespace di::ops::cuda
