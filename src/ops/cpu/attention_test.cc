#include "ops/cpu/attention.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/cpu/random_batch.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

struct Shape {
  int64_t heads;
  int64_t dim;
  int64_t window;
  int64_t selected;
  int64_t ratio;
  KvFormat format;
};

/// The kernels that this machine can run.
std::vector<const AttentionKernels*> runnable() {
  std::vector<const AttentionKernels*> kernels;
  const CpuFeatures features = detect_cpu();
  if (features.avx2_fma) kernels.push_back(&kAvx2Attention);
  if (features.avx512) kernels.push_back(&kAvx512Attention);
  return kernels;
}

/// A random call with everything it views.
class RandomAttention {
 public:
  RandomAttention(unsigned seed, const Shape& shape)
      : shape_(shape), batch_(seed, 4, 3 * shape.window + 40), op_{} {
    const int64_t rows = batch_.count();
    const int64_t window_bytes = kv_record_bytes(KvFormat::kFp8, shape.dim);
    const int64_t ring_length = shape.window + 6;
    window_ = records(rows, KvFormat::kFp8);
    ring_ = records(batch_.num_slots() * ring_length, KvFormat::kFp8);
    q_ = batch_.bf16s(rows * shape.heads * shape.dim, 1.5f);
    for (int64_t head = 0; head < shape.heads; ++head)
      sink_.push_back(batch_.normal(4.0f));
    op_.q = View<const bf16, 3>(q_.data(), rows, shape.heads, shape.dim);
    op_.window_records = View<const uint8_t, 2>(window_.data(), rows, window_bytes);
    op_.ring = {
        .base = reinterpret_cast<std::byte*>(ring_.data()),
        .slot_stride = ring_length * window_bytes,
        .length = ring_length,
        .record_bytes = window_bytes};
    op_.window = shape.window;
    op_.sink = View<const float, 1>(sink_.data(), shape.heads);
    op_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.dim)));
    op_.rows = batch_.rows();
    if (shape.ratio > 0) add_compressed();
  }

  const SparseAttention& op() const { return op_; }

 private:
  std::vector<uint8_t> records(int64_t count, KvFormat format) {
    const int64_t codes = format == KvFormat::kFp8 ? shape_.dim : shape_.dim / 2;
    const int64_t bytes = kv_record_bytes(format, shape_.dim);
    std::vector<uint8_t> all(static_cast<std::size_t>(count * bytes));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_scale = static_cast<int64_t>(i) % bytes >= codes;
      if (format == KvFormat::kFp8) {
        all[i] = is_scale ? static_cast<uint8_t>(batch_.integer(116, 124)) : batch_.e4m3();
      } else {
        all[i] = is_scale ? static_cast<uint8_t>(batch_.integer(0, 64)) : batch_.byte();
      }
    }
    return all;
  }

  void add_compressed() {
    const int64_t per_block = 128 / shape_.ratio;
    const int64_t bytes = kv_record_bytes(shape_.format, shape_.dim);
    compressed_ = records(batch_.num_blocks() * per_block, shape_.format);
    op_.compressed = {
        .base = reinterpret_cast<std::byte*>(compressed_.data()),
        .block_stride = per_block * bytes,
        .entries_per_block = per_block,
        .record_bytes = bytes};
    op_.format = shape_.format;
    for (int64_t row = 0; row < batch_.count(); ++row)
      select((op_.rows.positions(row) + 1) / shape_.ratio);
    op_.selected = View<const int32_t, 2>(selected_.data(), batch_.count(), shape_.selected);
  }

  /// Ascending entries with holes; now and then a long run of them, or nothing else.
  void select(int64_t visible) {
    const int64_t keep = batch_.integer(0, 4);
    int64_t j = 0;
    for (int64_t i = 0; i < shape_.selected; ++i) {
      const bool in_run = keep == 1 && i < 70;
      if (j < visible && keep != 0 && !in_run && batch_.integer(0, 4) != 0) {
        selected_.push_back(static_cast<int32_t>(j));
        j += batch_.integer(1, 2);
      } else {
        selected_.push_back(-1);
      }
    }
  }

  Shape shape_;
  RandomBatch batch_;
  SparseAttention op_;
  std::vector<uint8_t> window_, ring_, compressed_;
  std::vector<bf16> q_;
  std::vector<float> sink_;
  std::vector<int32_t> selected_;
};

std::vector<bf16> output(const SparseAttention& op) {
  return std::vector<bf16>(static_cast<std::size_t>(op.q.size()), bf16{0x7fc0});
}

SparseAttention writing_to(SparseAttention op, std::vector<bf16>& o) {
  op.o = View<bf16, 3>(o.data(), op.q.dim(0), op.q.dim(1), op.q.dim(2));
  return op;
}

std::vector<bf16> by_reference(const SparseAttention& op) {
  std::vector<bf16> o = output(op);
  ref::sparse_attention(writing_to(op, o), {0, op.q.dim(0)});
  return o;
}

std::vector<bf16> by_kernels(
    const AttentionKernels& kernels, int threads, const SparseAttention& op
) {
  ThreadPool pool(threads);
  Arena scratch;
  Exec exec{pool, scratch};
  std::vector<bf16> o = output(op);
  sparse_attention(kernels, exec, writing_to(op, o));
  return o;
}

/// Rows that every sequence has: a block of so many can be asked for.
int64_t shortest_run(const SparseAttention& op) {
  int64_t shortest = op.q.dim(0);
  for (const SequenceRows& sequence : op.rows.sequences)
    shortest = std::min(shortest, sequence.num_rows);
  return shortest;
}

class AttentionOnCpu : public testing::TestWithParam<Shape> {};

TEST_P(AttentionOnCpu, EqualsTheReferenceBitForBitWithAnyNumberOfThreads) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const RandomAttention random(seed, GetParam());
    const std::vector<bf16> expected = by_reference(random.op());
    for (const AttentionKernels* kernels : runnable()) {
      for (const int threads : {1, 2, 3}) {
        EXPECT_EQ(by_kernels(*kernels, threads, random.op()), expected)
            << "seed " << seed << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(AttentionOnCpu, GivesARowTheSameResultAloneAsInItsBatch) {
  const RandomAttention random(100, GetParam());
  const SparseAttention& op = random.op();
  const std::size_t width = static_cast<std::size_t>(op.q.stride());
  for (const AttentionKernels* kernels : runnable()) {
    const std::vector<bf16> whole = by_kernels(*kernels, 2, op);
    for (int64_t row = 0; row < op.q.dim(0); ++row) {
      SparseAttention alone = op;
      alone.q = View<const bf16, 3>(op.q.row(row), 1, op.q.dim(1), op.q.dim(2));
      alone.selected = View<const int32_t, 2>(
          op.selected.data == nullptr ? nullptr : op.selected.row(row), 1, op.selected.dim(1)
      );
      alone.rows.sequence_of = View<const int32_t, 1>(&op.rows.sequence_of(row), 1);
      alone.rows.positions = View<const int64_t, 1>(&op.rows.positions(row), 1);
      const std::vector<bf16> o = by_kernels(*kernels, 2, alone);
      EXPECT_EQ(std::memcmp(o.data(), &whole[static_cast<std::size_t>(row) * width], width * 2), 0);
    }
  }
}

TEST_P(AttentionOnCpu, DraftBlocksEqualTheReferenceBitForBit) {
  for (unsigned seed = 200; seed < 212; ++seed) {
    const RandomAttention random(seed, GetParam());
    SparseAttention op = random.op();
    op.block = shortest_run(op);
    const std::vector<bf16> expected = by_reference(op);
    for (const AttentionKernels* kernels : runnable()) {
      for (const int threads : {1, 3})
        EXPECT_EQ(by_kernels(*kernels, threads, op), expected) << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    AttentionOnCpu,
    testing::Values(
        Shape{4, 512, 32, 48, 1, KvFormat::kFp4},
        Shape{3, 128, 128, 100, 2, KvFormat::kFp8},
        Shape{4, 128, 64, 130, 2, KvFormat::kFp4},
        Shape{64, 512, 128, 200, 1, KvFormat::kFp4},
        Shape{17, 96, 20, 70, 2, KvFormat::kFp8},
        Shape{8, 64, 33, 0, 0, KvFormat::kFp4}
    )
);

}  // namespace
}  // namespace di::ops::cpu
