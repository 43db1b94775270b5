#include "sampling/verification.h"

#include <algorithm>

#include "sampling/philox.h"

namespace di::sampling {
namespace {

/// The weight of one more draft, `draft`, than of a length whose weight is given.
double next_weight(const JudgedDraft& draft, double weight) {
  const auto own = std::find_if(
      draft.candidates.begin(),
      draft.candidates.end(),
      [&](const Candidate& candidate) { return candidate.token == draft.token; }
  );
  if (own == draft.candidates.end() || own->drafted == 0) return 0;
  return std::min(weight * own->wanted / own->drafted, 1.0);
}

}  // namespace

VerificationRule rule_for(
    const SamplingParams& params, bool seed_was_given, VerificationMode mode
) {
  const bool is_asked = mode == VerificationMode::kExactSeed;
  const bool is_repeated = mode == VerificationMode::kAuto && seed_was_given;
  const bool is_exact = is_asked || is_repeated || params.temperature == 0;
  return is_exact ? VerificationRule::kExactSeed : VerificationRule::kBlock;
}

BlockOdds block_odds(std::span<const JudgedDraft> drafts) {
  BlockOdds odds{.accept = {1}, .weight = {1}};
  for (std::size_t i = 1; i <= drafts.size(); ++i) {
    const double weight = next_weight(drafts[i - 1], odds.weight.back());
    double accept = weight;
    if (i < drafts.size()) {
      const double rest = remainder(drafts[i], weight).all;
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

Remainder remainder(const JudgedDraft& next, double weight) {
  Remainder rest;
  for (const Candidate& candidate : next.candidates) {
    rest.candidates.push_back(std::max(weight * candidate.wanted - candidate.drafted, 0.0));
    rest.all += rest.candidates.back();
  }
  rest.others = weight * next.others;
  rest.all += rest.others;
  return rest;
}

BlockNumbers block_numbers(uint64_t seed, int64_t anchor_position, std::size_t num_drafts) {
  BlockNumbers numbers;
  for (uint32_t i = 0; i < num_drafts; ++i)
    numbers.coins.push_back(uniform(seed, anchor_position, Stream::kAcceptance, i));
  numbers.share = uniform(seed, anchor_position, Stream::kBehindDrafts);
  return numbers;
}

double draft_share(uint64_t seed, int64_t anchor_position, int64_t index) {
  return uniform(seed, anchor_position, Stream::kDraft, static_cast<uint32_t>(index));
}

}  // namespace di::sampling
