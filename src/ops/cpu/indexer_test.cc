#include "ops/cpu/indexer.h"

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/cpu/random_batch.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

/// How the E8M0 scales of queries and keys are spread.
enum class Scales {
  kNear,     ///< a few binades, as real data has them
  kFar,      ///< too far apart for int32 in some keys and not in others
  kExtreme,  ///< the whole range of the format
};

struct Shape {
  int64_t heads;
  int64_t dim;
  int64_t ratio;
  int64_t topk;
  int64_t block_size;
  int64_t blocks;
  Scales scales;
};

/// The kernels that this machine can run.
std::vector<const IndexKernels*> runnable() {
  std::vector<const IndexKernels*> kernels;
  const CpuFeatures features = detect_cpu();
  if (features.avx2_fma) kernels.push_back(&kAvx2Index);
  if (features.avx512) kernels.push_back(&kAvx512Index);
  if (features.avx512_vnni) kernels.push_back(&kVnniIndex);
  return kernels;
}

/// A random call with everything it reads. Codes repeat often, so that scores tie.
class RandomIndex {
 public:
  RandomIndex(unsigned seed, const Shape& shape) : shape_(shape), batch_(seed, 3, 700), op_{} {
    const int64_t rows = batch_.count();
    const int64_t codes = shape.dim / 2;
    const int64_t scales = shape.dim / 32;
    const int64_t per_block = 128 / shape.ratio;
    q_codes_ = repeating_codes(rows * shape.heads, codes);
    q_scales_ = random_scales(rows * shape.heads * scales);
    weights_ = batch_.bf16s(rows * shape.heads, 0.1f);
    for (int64_t block = 0; block < batch_.num_blocks(); ++block) {
      const std::vector<uint8_t> key_codes = repeating_codes(per_block, codes);
      const std::vector<uint8_t> key_scales = random_scales(per_block * scales);
      keys_.insert(keys_.end(), key_codes.begin(), key_codes.end());
      keys_.insert(keys_.end(), key_scales.begin(), key_scales.end());
    }
    op_.q_codes = View<const uint8_t, 3>(q_codes_.data(), rows, shape.heads, codes);
    op_.q_scales = View<const uint8_t, 3>(q_scales_.data(), rows, shape.heads, scales);
    op_.head_weights = View<const bf16, 2>(weights_.data(), rows, shape.heads);
    op_.keys = {
        .base = reinterpret_cast<std::byte*>(keys_.data()),
        .block_stride = per_block * (codes + scales),
        .entries_per_block = per_block,
        .record_bytes = codes};
    op_.ratio = shape.ratio;
    op_.candidate_block_size = shape.block_size;
    op_.rows = batch_.rows();
  }

  const IndexSelect& op() const { return op_; }
  const Shape& shape() const { return shape_; }

 private:
  std::vector<uint8_t> repeating_codes(int64_t count, int64_t bytes) {
    const std::vector<uint8_t> pool = batch_.bytes(5 * bytes);
    std::vector<uint8_t> all;
    for (int64_t i = 0; i < count; ++i) {
      if (batch_.integer(0, 2) == 0) {
        const auto pick = pool.begin() + batch_.integer(0, 4) * bytes;
        all.insert(all.end(), pick, pick + bytes);
      } else {
        const std::vector<uint8_t> fresh = batch_.bytes(bytes);
        all.insert(all.end(), fresh.begin(), fresh.end());
      }
      if (batch_.integer(0, 5) == 0) {  // a group of zeros of both signs
        std::fill(all.end() - 16, all.end(), batch_.integer(0, 1) == 0 ? 0x08 : 0x80);
      }
    }
    return all;
  }

  std::vector<uint8_t> random_scales(int64_t count) {
    std::vector<uint8_t> scales(static_cast<std::size_t>(count));
    for (uint8_t& scale : scales) {
      switch (shape_.scales) {
        case Scales::kNear: scale = static_cast<uint8_t>(batch_.integer(122, 125)); break;
        case Scales::kFar: scale = static_cast<uint8_t>(batch_.integer(115, 125)); break;
        case Scales::kExtreme: scale = static_cast<uint8_t>(batch_.integer(1, 180)); break;
      }
    }
    return scales;
  }

  Shape shape_;
  RandomBatch batch_;
  IndexSelect op_;
  std::vector<uint8_t> q_codes_, q_scales_, keys_;
  std::vector<bf16> weights_;
};

struct Selection {
  std::vector<int32_t> selected;
  std::vector<int32_t> candidates;
  bool operator==(const Selection&) const = default;
};

/// Runs `select` on a copy of op with outputs of its own.
template <class Select>
Selection run(IndexSelect op, const Shape& shape, const Select& select) {
  const int64_t rows = op.q_codes.dim(0);
  Selection result;
  result.selected.assign(static_cast<std::size_t>(rows * shape.topk), -7);
  result.candidates.assign(static_cast<std::size_t>(rows * shape.blocks), -7);
  op.selected = View<int32_t, 2>(result.selected.data(), rows, shape.topk);
  op.candidates_out = View<int32_t, 2>(result.candidates.data(), rows, shape.blocks);
  select(op);
  return result;
}

Selection by_reference(const IndexSelect& op, const Shape& shape) {
  return run(op, shape, [](const IndexSelect& x) { ref::index_select(x, {0, x.selected.dim(0)}); });
}

Selection by_kernels(
    const IndexKernels& kernels, int threads, const IndexSelect& op, const Shape& shape
) {
  ThreadPool pool(threads);
  Arena scratch;
  Exec exec{pool, scratch};
  return run(op, shape, [&](const IndexSelect& x) { index_select(kernels, exec, x); });
}

class IndexOnCpu : public testing::TestWithParam<Shape> {};

TEST_P(IndexOnCpu, SelectsWhatTheReferenceSelects) {
  const Shape& shape = GetParam();
  for (unsigned seed = 0; seed < 10; ++seed) {
    const RandomIndex random(seed, shape);
    const Selection expected = by_reference(random.op(), shape);
    for (const IndexKernels* kernels : runnable()) {
      for (const int threads : {1, 2, 3})
        EXPECT_EQ(by_kernels(*kernels, threads, random.op(), shape), expected) << "seed " << seed;
    }
  }
}

TEST_P(IndexOnCpu, SelectsWhatTheReferenceSelectsAmongCandidates) {
  const Shape& shape = GetParam();
  for (unsigned seed = 20; seed < 26; ++seed) {
    const RandomIndex random(seed, shape);
    const Selection source = by_reference(random.op(), shape);
    IndexSelect op = random.op();
    op.candidates_in =
        View<const int32_t, 2>(source.candidates.data(), op.q_codes.dim(0), shape.blocks);
    const Selection expected = by_reference(op, shape);
    for (const IndexKernels* kernels : runnable())
      EXPECT_EQ(by_kernels(*kernels, 2, op, shape), expected) << "seed " << seed;
  }
}

TEST_P(IndexOnCpu, GivesARowTheSameSelectionAloneAsInItsBatch) {
  const Shape& shape = GetParam();
  const RandomIndex random(40, shape);
  const IndexSelect& op = random.op();
  for (const IndexKernels* kernels : runnable()) {
    const Selection whole = by_kernels(*kernels, 2, op, shape);
    for (int64_t row = 0; row < op.q_codes.dim(0); ++row) {
      IndexSelect alone = op;
      alone.q_codes =
          View<const uint8_t, 3>(op.q_codes.row(row), 1, op.q_codes.dim(1), op.q_codes.dim(2));
      alone.q_scales =
          View<const uint8_t, 3>(op.q_scales.row(row), 1, op.q_scales.dim(1), op.q_scales.dim(2));
      alone.head_weights = View<const bf16, 2>(op.head_weights.row(row), 1, op.head_weights.dim(1));
      alone.rows.sequence_of = View<const int32_t, 1>(&op.rows.sequence_of(row), 1);
      alone.rows.positions = View<const int64_t, 1>(&op.rows.positions(row), 1);
      const Selection one = by_kernels(*kernels, 3, alone, shape);
      const auto first = whole.selected.begin() + row * shape.topk;
      EXPECT_TRUE(std::equal(one.selected.begin(), one.selected.end(), first));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    IndexOnCpu,
    testing::Values(
        Shape{32, 128, 1, 48, 8, 8, Scales::kNear},
        Shape{32, 128, 2, 512, 8, 30, Scales::kNear},
        Shape{3, 128, 2, 48, 8, 8, Scales::kFar},
        Shape{5, 64, 1, 7, 5, 3, Scales::kNear},
        Shape{4, 32, 1, 16, 16, 4, Scales::kExtreme},
        Shape{4, 128, 1, 16, 64, 4, Scales::kExtreme}
    )
);

}  // namespace
}  // namespace di::ops::cpu
