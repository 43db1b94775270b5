// The cpu mixture of experts against the reference, bit for bit, on every instruction set of this
// processor.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cpu/testing.h"

namespace di::ops {
namespace {

using cpu::testing::isas;
using cpu::testing::PackedWeight;
using cpu::testing::random_q8;
using cpu::testing::random_weight;
using cpu::testing::RawWeight;
using cpu::testing::same_bits;
using cpu::testing::uniform;

struct Sizes {
  int64_t rows, experts, top_k, hidden, inner;
  WeightFormat routed, shared;
};

/// The three matrices of an expert, raw and packed.
struct Expert {
  RawWeight raw[3];
  std::vector<PackedWeight> packed;

  Expert(
      std::mt19937& random, const OpTable& ops, WeightFormat format, int64_t hidden, int64_t inner
  )
      : raw{random_weight(random, format, inner, hidden),
            random_weight(random, format, inner, hidden),
            random_weight(random, format, hidden, inner)} {
    for (RawWeight& w : raw) {
      for (uint8_t& scale : w.scales)  // products of three matrices stay finite
        scale = static_cast<uint8_t>(uniform(random, 112, 120));
      packed.emplace_back(ops, w.weight());
    }
  }
  ExpertWeights raw_weights() const { return {raw[0].weight(), raw[1].weight(), raw[2].weight()}; }
  ExpertWeights packed_weights() const {
    return {packed[0].weight(), packed[1].weight(), packed[2].weight()};
  }
};

/// k distinct ids in ascending order for each row, a few experts much more popular than others.
std::vector<int32_t> random_ids(std::mt19937& random, const Sizes& sizes) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    std::vector<int32_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < sizes.top_k) {
      const int limit = static_cast<int>(uniform(random, 0, 1) == 0 ? sizes.top_k : sizes.experts);
      const int32_t id = uniform(random, 0, limit - 1);
      if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
    }
    std::sort(chosen.begin(), chosen.end());
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

class ExpertsTest : public testing::TestWithParam<Isa> {
 protected:
  std::mt19937 random_{11};

  void expect_equal(const Sizes& sizes, int threads) {
    const OpTable& cpu = cpu_ops(GetParam());
    std::vector<Expert> experts;
    for (int64_t e = 0; e < sizes.experts; ++e)
      experts.emplace_back(random_, cpu, sizes.routed, sizes.hidden, sizes.inner);
    const Expert shared(random_, cpu, sizes.shared, sizes.hidden, sizes.inner);
    std::vector<ExpertWeights> raw, packed;
    for (const Expert& expert : experts) {
      raw.push_back(expert.raw_weights());
      packed.push_back(expert.packed_weights());
    }
    const auto x = random_q8(random_, sizes.rows, sizes.hidden);
    const std::vector<int32_t> ids = random_ids(random_, sizes);
    std::vector<float> weights(ids.size());
    for (float& w : weights)
      w = static_cast<float>(uniform(random_, 1, 1000)) / 700.0f;
    std::vector<bf16> expected(static_cast<std::size_t>(sizes.rows * sizes.hidden));
    std::vector<bf16> found(expected.size());
    ThreadPool pool(threads);
    Arena scratch;
    Exec exec{pool, scratch};
    const auto op = [&](std::vector<bf16>& y,
                        const std::vector<ExpertWeights>& all,
                        const ExpertWeights& shared_weights) {
      return Experts{
          .y = View<bf16, 2>(y.data(), sizes.rows, sizes.hidden),
          .x = x.view(),
          .ids = View<const int32_t, 2>(ids.data(), sizes.rows, sizes.top_k),
          .weights = View<const float, 2>(weights.data(), sizes.rows, sizes.top_k),
          .experts = all,
          .shared = shared_weights,
          .swiglu_limit = 7.0f};
    };
    ref_ops().experts(exec, op(expected, raw, shared.raw_weights()));
    cpu.experts(exec, op(found, packed, shared.packed_weights()));
    EXPECT_TRUE(same_bits(expected, found)) << sizes.rows << " rows, threads " << threads;
  }
};

TEST_P(ExpertsTest, EqualTheReferenceBitForBit) {
  constexpr auto kFp4 = WeightFormat::kFp4;
  constexpr auto kFp8 = WeightFormat::kFp8;
  for (const int64_t rows : {1, 2, 3, 16, 17, 60})
    expect_equal({rows, 9, 3, 96, 64, kFp4, kFp8}, 1 + static_cast<int>(rows % 3));
  expect_equal({5, 4, 2, 96, 32, kFp8, kFp8}, 2);
  expect_equal({40, 4, 4, 64, 96, kFp4, kFp4}, 3);
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa,
    ExpertsTest,
    testing::ValuesIn(isas()),
    [](const testing::TestParamInfo<Isa>& isa) { return std::string(name_of(isa.param)); }
);

}  // namespace
}  // namespace di::ops
