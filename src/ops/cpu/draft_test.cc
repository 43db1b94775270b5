// The Markov head against the reference, bit for bit, on every instruction set of this processor.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cpu/testing.h"
#include "ops/ops.h"

namespace di::ops {
namespace {

using cpu::testing::isas;
using cpu::testing::PackedWeight;
using cpu::testing::random_bf16;
using cpu::testing::random_values;
using cpu::testing::random_weight;
using cpu::testing::RawWeight;
using cpu::testing::same_bits;

constexpr int64_t kWidth = 24;  // of the features, without the embedding

/// What a round starts from.
struct Inputs {
  Inputs(std::mt19937& random, int64_t num_rows, int64_t vocab, int64_t rank)
      : rows(num_rows),
        embed(random_bf16(random, vocab * rank)),
        head(random_weight(random, WeightFormat::kBf16, vocab, rank)),
        logits(random_values(random, num_rows * vocab)) {
    for (int64_t row = 0; row < rows; ++row)
      previous.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }

  int64_t rows;
  std::vector<bf16> embed;
  RawWeight head;
  std::vector<float> logits;
  std::vector<int32_t> previous;
};

/// What a round leaves.
struct Results {
  std::vector<float> logits;
  std::vector<int32_t> best;
  std::vector<bf16> features;
};

Results run(const OpTable& ops, int threads, const Inputs& inputs, const Weight& head) {
  ThreadPool pool(threads);
  Arena scratch;
  Exec exec{pool, scratch};
  const int64_t rows = inputs.rows, width = kWidth + head.cols;
  Results results{
      inputs.logits,
      std::vector<int32_t>(static_cast<std::size_t>(rows), -1),
      std::vector<bf16>(static_cast<std::size_t>(rows * width), bf16{0x7fc0})};
  ops.markov_round(
      exec,
      {.logits = View<float, 2>(results.logits.data(), rows, head.rows),
       .best = View<int32_t, 1>(results.best.data(), rows),
       .features = View<bf16, 2>(results.features.data(), rows, width),
       .previous = View<const int32_t, 1>(inputs.previous.data(), rows),
       .embed = View<const bf16, 2>(inputs.embed.data(), head.rows, head.cols),
       .head = head}
  );
  return results;
}

class MarkovTest : public testing::TestWithParam<Isa> {
 protected:
  void expect_equal(const Inputs& inputs) const {
    const OpTable& cpu = cpu_ops(GetParam());
    const PackedWeight packed(cpu, inputs.head.weight());
    const Results expected = run(ref_ops(), 1, inputs, inputs.head.weight());
    for (const int threads : {1, 2, 3}) {
      const Results found = run(cpu, threads, inputs, packed.weight());
      EXPECT_TRUE(same_bits(expected.logits, found.logits)) << inputs.rows << " rows";
      EXPECT_EQ(expected.best, found.best) << inputs.rows << " rows";
      EXPECT_TRUE(same_bits(expected.features, found.features)) << inputs.rows << " rows";
    }
  }

  std::mt19937 random_{3};
};

TEST_P(MarkovTest, EqualsTheReferenceBitForBit) {
  for (const int64_t rows : {1, 2, 5, 32, 33, 70})
    expect_equal(Inputs(random_, rows, 700, 32));
  for (const int64_t vocab : {1, 15, 16, 17, 256, 257, 513})
    expect_equal(Inputs(random_, 3, vocab, 24));
}

TEST_P(MarkovTest, TiesGoToTheLowerTokenAndNaNIsNeverTheBest) {
  Inputs inputs(random_, 4, 600, 32);
  const std::size_t vocab = 600;
  std::fill(inputs.head.data.begin(), inputs.head.data.end(), std::byte{0});
  for (const std::size_t token : {599u, 300u, 44u})
    inputs.logits[token] = 1e6f;  // row 0: a tie over three pieces
  std::fill_n(inputs.logits.begin() + vocab, vocab, -std::numeric_limits<float>::infinity());
  std::fill_n(inputs.logits.begin() + 2 * vocab, vocab, std::nanf(""));
  inputs.logits[3 * vocab] = std::nanf("");
  inputs.logits[3 * vocab + 20] = 1e6f;
  expect_equal(inputs);
  const std::vector<int32_t> best = run(ref_ops(), 1, inputs, inputs.head.weight()).best;
  EXPECT_EQ(best, (std::vector<int32_t>{44, 0, 0, 20}));
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa,
    MarkovTest,
    testing::ValuesIn(isas()),
    [](const testing::TestParamInfo<Isa>& isa) { return std::string(name_of(isa.param)); }
);

}  // namespace
}  // namespace di::ops
