#include "sampling/verification.h"

#include <algorithm>

#include "sampling/philox.h"

namespace di::sampling {
namespace {

/// The probability that draft `i` was `token`.
double draft_probability(const DraftBlock& block, int64_t i, int32_t token) {
  if (block.draft.data != nullptr) return block.draft(i, token);
  return token == block.drafts[static_cast<std::size_t>(i)] ? 1 : 0;
}

/// What is left for other tokens behind `length` drafts of that weight, of a block that has more.
double residual(const DraftBlock& block, int64_t length, double weight, int32_t token) {
  return std::max(
      weight * block.target(length, token) - draft_probability(block, length, token), 0.0
  );
}

double residual_sum(const DraftBlock& block, int64_t length, double weight) {
  double sum = 0;
  for (int32_t token = 0; token < block.target.dim(1); ++token)
    sum += residual(block, length, weight, token);
  return sum;
}

/// The weight of one more draft than `i`, whose weight is given.
double next_weight(const DraftBlock& block, int64_t i, double weight) {
  const int32_t token = block.drafts[static_cast<std::size_t>(i)];
  const double drafted = draft_probability(block, i, token);
  const double wanted = weight * block.target(i, token);
  return wanted < drafted ? wanted / drafted : drafted > 0 ? 1 : 0;
}

}  // namespace

int64_t accepted_drafts(std::span<const int32_t> drafts, std::span<const int32_t> draws) {
  return std::mismatch(drafts.begin(), drafts.end(), draws.begin()).first - drafts.begin();
}

BlockOdds block_odds(const DraftBlock& block) {
  const auto k = std::ssize(block.drafts);
  BlockOdds odds{.accept = {1}, .weight = {1}};
  for (int64_t i = 1; i <= k; ++i) {
    const double weight = next_weight(block, i - 1, odds.weight.back());
    double accept = weight;
    if (i < k) {
      const double rest = residual_sum(block, i, weight);
      const double all = rest + 1 - weight;
      accept = all > 0 ? rest / all : 0;
    }
    odds.weight.push_back(weight);
    odds.accept.push_back(accept);
  }
  return odds;
}

int64_t accepted_length(const BlockOdds& odds, std::span<const double> coins) {
  auto length = std::ssize(coins);
  while (length > 0 && !(coins[static_cast<std::size_t>(length - 1)] <
                         odds.accept[static_cast<std::size_t>(length)]))
    --length;
  return length;
}

double next_mass(const DraftBlock& block, const BlockOdds& odds, int64_t length, int32_t token) {
  if (length == std::ssize(block.drafts)) return block.target(length, token);
  return residual(block, length, odds.weight[static_cast<std::size_t>(length)], token);
}

int32_t next_token(const DraftBlock& block, const BlockOdds& odds, int64_t length, double share) {
  const auto vocab = static_cast<int32_t>(block.target.dim(1));
  double all = 0;
  for (int32_t token = 0; token < vocab; ++token)
    all += next_mass(block, odds, length, token);
  // The last one with a mass. There is one unless both laws agree here, and then the draft will do.
  int32_t last =
      length < std::ssize(block.drafts) ? block.drafts[static_cast<std::size_t>(length)] : 0;
  double sum = 0;
  for (int32_t token = 0; token < vocab; ++token) {
    const double mass = next_mass(block, odds, length, token);
    if (mass > 0) last = token;
    sum += mass;
    if (mass > 0 && share * all < sum) break;
  }
  return last;
}

BlockVerdict verify_block(const DraftBlock& block, uint64_t seed, int64_t anchor_position) {
  const BlockOdds odds = block_odds(block);
  std::vector<double> coins;
  for (uint32_t i = 0; i < block.drafts.size(); ++i)
    coins.push_back(uniform(seed, anchor_position, Stream::kAcceptance, i));
  const int64_t accepted = accepted_length(odds, coins);
  const double share = uniform(seed, anchor_position, Stream::kBehindDrafts);
  return {accepted, next_token(block, odds, accepted, share)};
}

double draft_share(uint64_t seed, int64_t anchor_position, int64_t index) {
  return uniform(seed, anchor_position, Stream::kDraft, static_cast<uint32_t>(index));
}

}  // namespace di::sampling
