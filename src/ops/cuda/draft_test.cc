// The Markov head on the device: near the reference, its own best tokens, the same bits in any
// batch.
#include "ops/cuda/draft.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>

#include "ops/cuda/packing.h"
#include "ops/cuda/testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;

constexpr int64_t kWidth = 40;  // of the features, without the embedding

/// A round on the device over rows [first, first + count) of random inputs.
class Round {
 public:
  Round(unsigned seed, int64_t rows, int64_t vocab, int64_t rank)
      : rows_(rows),
        vocab_(vocab),
        rank_(rank),
        random_(seed),
        embed(bf16s(vocab * rank)),
        head(bf16s(vocab * rank)),
        logits(static_cast<std::size_t>(rows * vocab)) {
    for (float& logit : logits)
      logit = normal_(random_) * 3;
    for (int64_t row = 0; row < rows; ++row)
      previous.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(vocab)));
  }

  struct Results {
    std::vector<float> logits;
    std::vector<int32_t> best;
    std::vector<bf16> features;
  };

  Weight raw() const {
    const auto* data = reinterpret_cast<const std::byte*>(head.data());
    return {WeightFormat::kBf16, vocab_, rank_, data, nullptr};
  }

  Results by_reference() const {
    Results results = blank(rows_, logits);
    ref::markov_round(
        {.logits = View<float, 2>(results.logits.data(), rows_, vocab_),
         .best = View<int32_t, 1>(results.best.data(), rows_),
         .features = View<bf16, 2>(results.features.data(), rows_, kWidth + rank_),
         .previous = View<const int32_t, 1>(previous.data(), rows_),
         .embed = View<const bf16, 2>(embed.data(), vocab_, rank_),
         .head = raw()},
        {0, rows_}
    );
    return results;
  }

  Results on_device(Machine& machine, int64_t first, int64_t count) const {
    DeviceArray<std::byte> packed(packed_bytes(WeightFormat::kBf16, vocab_, rank_));
    for (int64_t row = 0; row < vocab_; row += kPackRows)
      pack(raw(), {row, std::min(vocab_, row + kPackRows)}, packed.data());
    const Results inputs =
        blank(count, {logits.begin() + first * vocab_, logits.begin() + (first + count) * vocab_});
    const DeviceArray<float> device_logits(inputs.logits);
    const DeviceArray<int32_t> best(inputs.best);
    const DeviceArray<bf16> features(inputs.features);
    const auto from = previous.begin() + first;
    const DeviceArray<int32_t> device_previous(std::vector<int32_t>(from, from + count));
    const DeviceArray<bf16> device_embed(embed);
    markov_round(
        machine.device(),
        {.logits = View<float, 2>(device_logits.data(), count, vocab_),
         .best = View<int32_t, 1>(best.data(), count),
         .features = View<bf16, 2>(features.data(), count, kWidth + rank_),
         .previous = View<const int32_t, 1>(device_previous.data(), count),
         .embed = View<const bf16, 2>(device_embed.data(), vocab_, rank_),
         .head = {WeightFormat::kBf16, vocab_, rank_, packed.data(), nullptr}}
    );
    return {device_logits.read(), best.read(), features.read()};
  }

 private:
  std::vector<bf16> bf16s(int64_t count) {
    std::vector<bf16> values(static_cast<std::size_t>(count));
    for (bf16& value : values)
      value = to_bf16(normal_(random_));
    return values;
  }
  Results blank(int64_t rows, std::vector<float> base) const {
    return {
        std::move(base),
        std::vector<int32_t>(static_cast<std::size_t>(rows), -1),
        std::vector<bf16>(static_cast<std::size_t>(rows * (kWidth + rank_)), to_bf16(0.5f))};
  }

  int64_t rows_, vocab_, rank_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;

 public:
  std::vector<bf16> embed, head;
  std::vector<float> logits;
  std::vector<int32_t> previous;
};

/// The best token of each row of `vocab` logits; NaN never is.
std::vector<int32_t> best_of(const std::vector<float>& logits, std::size_t vocab) {
  std::vector<int32_t> best;
  for (std::size_t row = 0; row < logits.size(); row += vocab) {
    float top = -std::numeric_limits<float>::infinity();
    best.push_back(0);
    for (std::size_t v = 0; v < vocab; ++v) {
      if (!(logits[row + v] > top)) continue;
      top = logits[row + v];
      best.back() = static_cast<int32_t>(v);
    }
  }
  return best;
}

template <class T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(T)) == 0;
}

TEST(MarkovOnCuda, AgreesWithTheReferenceAndFindsTheBestTokens) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const auto& [rows, vocab, rank] :
       {std::tuple{1, 400, 32}, std::tuple{5, 4161, 256}, std::tuple{70, 1000, 32}}) {
    const Round round(1, rows, vocab, rank);
    const Round::Results expected = round.by_reference();
    const Round::Results found = round.on_device(machine, 0, rows);
    EXPECT_LT(testing::relative_error(found.logits, expected.logits), 1e-6) << vocab;
    EXPECT_EQ(found.best, best_of(found.logits, static_cast<std::size_t>(vocab))) << vocab;
    EXPECT_EQ(found.features, expected.features) << vocab;
  }
}

TEST(MarkovOnCuda, GivesARowTheSameBitsAloneAndInABatch) {
  DI_NEEDS_GPU();
  Machine machine;
  const Round round(2, 40, 500, 64);
  const Round::Results together = round.on_device(machine, 0, 40);
  for (const int64_t row : {0, 17, 39}) {
    const Round::Results alone = round.on_device(machine, row, 1);
    EXPECT_TRUE(same_bits(alone.logits.data(), &together.logits[row * 500], 500)) << row;
    EXPECT_EQ(alone.best[0], together.best[static_cast<std::size_t>(row)]);
  }
}

TEST(MarkovOnCuda, TiesGoToTheLowerTokenAndNaNIsNeverTheBest) {
  DI_NEEDS_GPU();
  Machine machine;
  Round round(3, 4, 600, 32);
  std::fill(round.head.begin(), round.head.end(), bf16{0});
  for (const std::size_t token : {599u, 300u, 44u})
    round.logits[token] = 1e6f;
  std::fill_n(round.logits.begin() + 600, 600, -std::numeric_limits<float>::infinity());
  std::fill_n(round.logits.begin() + 1200, 600, std::nanf(""));
  round.logits[1800] = std::nanf("");
  round.logits[1820] = 1e6f;
  EXPECT_EQ(round.on_device(machine, 0, 4).best, (std::vector<int32_t>{44, 0, 0, 20}));
}

}  // namespace
}  // namespace di::ops::cuda
