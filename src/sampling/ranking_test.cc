#include "sampling/ranking.h"

#include <random>

#include <gtest/gtest.h>

namespace di::sampling {
namespace {

TEST(BestTokens, AreThoseOfAFullSort) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 500; ++i) {
    std::vector<float> logits(1 + random() % 500);
    for (float& logit : logits)
      logit = static_cast<float>(random() % 40);
    std::vector<Ranked> sorted;
    for (std::size_t token = 0; token < logits.size(); ++token)
      sorted.push_back({logits[token], static_cast<int32_t>(token)});
    std::sort(sorted.begin(), sorted.end(), ranks_before);
    const int64_t count = static_cast<int64_t>(random() % 60);
    const auto best = best_tokens(std::span<const float>(logits), count);
    ASSERT_EQ(best.size(), std::min(logits.size(), static_cast<std::size_t>(count)));
    for (std::size_t rank = 0; rank < best.size(); ++rank)
      ASSERT_EQ(best[rank].token, sorted[rank].token);
  }
}

}  // namespace
}  // namespace di::sampling
