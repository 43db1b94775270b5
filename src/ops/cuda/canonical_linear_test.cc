// Linears, Markov head and hyper-connections in canonical arithmetic: the reference's bits.
#include <gtest/gtest.h>

#include "ops/cuda/canonical_testing.h"

namespace di::ops::cuda {
namespace {

using cpu::testing::Q8Rows;
using cpu::testing::random_bf16;
using cpu::testing::random_q8;
using cpu::testing::random_values;
using cpu::testing::random_weight;
using testing::different_bits;
using testing::Machine;
using testing::SharedArray;
using testing::SharedWeight;

struct Shape {
  int64_t outputs, cols;
};

TEST(CanonicalOnCuda, MultipliesCodesLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  std::mt19937 random(1);
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kFp4}) {
    for (const Shape shape : {Shape{1, 32}, {70, 96}, {96, 544}, {256, 1280}}) {
      const SharedWeight w(random_weight(random, format, shape.outputs, shape.cols));
      for (const int64_t rows : {1, 3, 15, 16, 70}) {
        const Q8Rows x = random_q8(random, rows, shape.cols);
        const SharedArray<uint8_t> codes(x.codes), scales(x.scales);
        const Q8View view{codes.rows(rows), scales.rows(rows)};
        const SharedArray<bf16> expected(rows * shape.outputs), found(rows * shape.outputs);
        ref_ops().linear_q8(machine.host(), {expected.rows(rows), view, w.host()});
        canonical_cuda_ops().linear_q8(machine.device(), {found.rows(rows), view, w.device()});
        machine.wait();
        EXPECT_EQ(different_bits(found, expected), 0) << rows << " rows, " << shape.outputs;
      }
    }
  }
}

struct PlainCase {
  WeightFormat format;
  int64_t outputs, cols;
  int64_t groups = 1;
  bool f32 = false;
  float factor = 1;
  bool q8 = false;
};

void expect_same_product(Machine& machine, std::mt19937& random, const PlainCase& c, int64_t rows) {
  const SharedWeight w(random_weight(random, c.format, c.outputs, c.cols));
  const SharedArray<bf16> x(random_bf16(random, rows * c.groups * c.cols));
  const int64_t count = rows * c.outputs;
  const SharedArray<bf16> y[2] = {SharedArray<bf16>(count), SharedArray<bf16>(count)};
  const SharedArray<float> y_f32[2] = {SharedArray<float>(count), SharedArray<float>(count)};
  const SharedArray<uint8_t> codes[2] = {SharedArray<uint8_t>(count), SharedArray<uint8_t>(count)};
  const SharedArray<uint8_t> scales[2] = {
      SharedArray<uint8_t>(count / 32), SharedArray<uint8_t>(count / 32)};
  for (const int i : {0, 1}) {
    Linear op{
        .y = y[i].rows(rows),
        .y_f32 = {},
        .x = x.rows(rows),
        .w = i == 0 ? w.host() : w.device(),
        .groups = c.groups,
        .y_factor = c.factor};
    if (c.f32) op.y_f32 = y_f32[i].rows(rows);
    if (c.q8) op.codes = codes[i].rows(rows);
    if (c.q8) op.scales = scales[i].rows(rows);
    if (i == 0) {
      ref_ops().linear(machine.host(), op);
    } else {
      canonical_cuda_ops().linear(machine.device(), op);
    }
  }
  machine.wait();
  EXPECT_EQ(different_bits(y[1], y[0]), 0) << rows << " rows, " << c.outputs << " outputs";
  EXPECT_EQ(different_bits(y_f32[1], y_f32[0]), 0) << rows << " rows, " << c.outputs;
  EXPECT_EQ(different_bits(codes[1], codes[0]), 0);
  EXPECT_EQ(different_bits(scales[1], scales[0]), 0);
}

TEST(CanonicalOnCuda, MultipliesPlainRowsLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  std::mt19937 random(2);
  const PlainCase cases[] = {
      {WeightFormat::kBf16, 64, 256},
      {WeightFormat::kBf16, 16, 1000, 1, true},
      {WeightFormat::kBf16, 1, 40, 1, true},
      {WeightFormat::kF32, 24, 1024, 1, true},
      {WeightFormat::kFp8, 128, 96, 2},
      {WeightFormat::kFp8, 96, 70, 1, false, 0.25f},
      {WeightFormat::kFp8, 192, 64, 3, false, 1, true},
      {WeightFormat::kBf16, 200, 5120}};
  for (const PlainCase& c : cases) {
    for (const int64_t rows : {1, 15, 16, 65})
      expect_same_product(machine, random, c, rows);
  }
}

TEST(CanonicalOnCuda, DraftsLikeTheReference) {
  DI_NEEDS_GPU();
  constexpr int64_t kVocab = 1001, kRank = 40, kFeatures = 64, kRows = 5;
  Machine machine;
  std::mt19937 random(3);
  const SharedWeight head(random_weight(random, WeightFormat::kBf16, kVocab, kRank));
  const SharedArray<bf16> embed(random_bf16(random, kVocab * kRank));
  const SharedArray<int32_t> previous(std::vector<int32_t>{0, 1000, 7, 7, 512});
  const std::vector<float> base = random_values(random, kRows * kVocab);
  const SharedArray<float> logits[2] = {SharedArray<float>(base), SharedArray<float>(base)};
  const SharedArray<int32_t> best[2] = {SharedArray<int32_t>(kRows), SharedArray<int32_t>(kRows)};
  const SharedArray<bf16> features[2] = {
      SharedArray<bf16>(kRows * (kFeatures + kRank)),
      SharedArray<bf16>(kRows * (kFeatures + kRank))};
  for (const int i : {0, 1}) {
    const MarkovRound op{
        .logits = logits[i].rows(kRows),
        .best = best[i].view(kRows),
        .features = features[i].rows(kRows),
        .previous = previous.view(kRows),
        .embed = embed.rows(kVocab),
        .head = i == 0 ? head.host() : head.device()};
    if (i == 0) {
      ref_ops().markov_round(machine.host(), op);
    } else {
      canonical_cuda_ops().markov_round(machine.device(), op);
    }
  }
  machine.wait();
  EXPECT_EQ(different_bits(logits[1], logits[0]), 0);
  EXPECT_EQ(different_bits(best[1], best[0]), 0);
  EXPECT_EQ(different_bits(features[1], features[0]), 0);
}

/// What a site gives.
struct SiteResults {
  SharedArray<float> pre, post, comb, mixes;
  SharedArray<bf16> x;
  SharedArray<uint8_t> codes, scales;

  SiteResults(int64_t rows, int64_t hidden)
      : pre(rows * 4),
        post(rows * 4),
        comb(rows * 16),
        mixes(rows * 24),
        x(rows * hidden),
        codes(rows * hidden),
        scales(rows * hidden / 32) {}
};

TEST(CanonicalOnCuda, MixesASiteLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  std::mt19937 random(4);
  for (const int64_t hidden : {64, 256, 5120}) {
    for (const int iters : {0, 20}) {
      const int64_t rows = hidden == 5120 ? 3 : 19;
      std::vector<float> fn = random_values(random, 24 * 4 * hidden);
      for (float& value : fn)
        value *= 0.01f;
      const SharedWeight projection(
          {WeightFormat::kF32, 24, 4 * hidden, cpu::testing::bytes_of(fn), {}}
      );
      const SharedArray<bf16> h(random_bf16(random, rows * 4 * hidden));
      const SharedArray<bf16> norm(random_bf16(random, hidden));
      const SharedArray<float> scale(std::vector<float>{0.5f, 0.6f, 0.4f});
      const SharedArray<float> base(std::vector<float>(24, 0.125f));
      const SharedArray<float> a(random_values(random, rows * 4));
      const SiteResults results[2] = {SiteResults(rows, hidden), SiteResults(rows, hidden)};
      for (const int i : {0, 1}) {
        const SiteResults& to = results[i];
        const MhcSite op{
            .mix =
                {.pre = to.pre.rows(rows),
                 .post = to.post.rows(rows),
                 .comb = to.comb.view(rows, 4, 4),
                 .mixes = to.mixes.rows(rows),
                 .h = h.view(rows, 4, hidden),
                 .fn = i == 0 ? projection.host() : projection.device(),
                 .scale = scale.view(3),
                 .base = base.view(24),
                 .sinkhorn_iters = iters,
                 .norm_eps = 1e-6f,
                 .hc_eps = 1e-6f},
            .x = to.x.rows(rows),
            .codes = to.codes.rows(rows),
            .scales = to.scales.rows(rows),
            .a = a.rows(rows),
            .norm = norm.view(hidden)};
        if (i == 0) {
          ref_ops().mhc_site(machine.host(), op);
        } else {
          canonical_cuda_ops().mhc_site(machine.device(), op);
        }
      }
      machine.wait();
      EXPECT_EQ(different_bits(results[1].mixes, results[0].mixes), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].pre, results[0].pre), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].post, results[0].post), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].comb, results[0].comb), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].x, results[0].x), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].codes, results[0].codes), 0) << hidden;
      EXPECT_EQ(different_bits(results[1].scales, results[0].scales), 0) << hidden;
    }
  }
}

}  // namespace
}  // namespace di::ops::cuda
