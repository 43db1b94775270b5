// Whether drafted tokens may stay: the two rules by which a text keeps its law however it is
// drafted, as plain arithmetic. draft_verifier.h applies them to rows of logits; who drafts, and
// how many drafts are verified, is decided elsewhere. docs/drafts.md compares the rules and says
// how they are proved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/params.h"

namespace di::sampling {

/// How it is decided whether a draft stays.
enum class VerificationRule {
  kExactSeed,  ///< when the target draws the same with the number of that position
  kBlock,      ///< when coins accept so many drafts, judged jointly by both laws
};

/// What a user asks for.
enum class VerificationMode { kAuto, kExactSeed, kBlock };

/// The rule for a request: exact-seed at temperature 0, where both accept the same; else the
/// mode's, and of kAuto exact-seed when a seed was given, so that a text can be repeated, and block
/// otherwise.
VerificationRule rule_for(
    const SamplingParams& params,
    bool seed_was_given,
    VerificationMode mode = VerificationMode::kAuto
);

/// A token that the drafter could have drawn.
struct Candidate {
  int32_t token = 0;
  double drafted = 0;  ///< its probability by the drafter
  double wanted = 0;   ///< by the target, at the same place
};

/// A draft with the two laws it is judged by, as far as they matter.
struct JudgedDraft {
  int32_t token = 0;
  std::vector<Candidate> candidates = {};  ///< each token that could have been drawn, once
  double others = 0;                       ///< what the target gives to all other tokens
};

/// Lossless block verification: the longest accepted length is the largest i whose coin falls
/// below accept[i]. It keeps more drafts than judging one after another, and the next tokens follow
/// the target's law exactly, provided that whether draft i is verified at all was decided without
/// looking at draft i or those behind it.
/// Source: Sun et al., "Block verification accelerates speculative decoding", 2024.
struct BlockOdds {
  std::vector<double> accept;  ///< [k + 1]: accept[0] is 1, no draft at all is always accepted
  std::vector<double> weight;  ///< [k + 1]: the share of the target's law that a length carries
};

BlockOdds block_odds(std::span<const JudgedDraft> drafts);

/// The accepted length; `coins` [k] are independent uniform numbers in [0, 1), one for each length.
int64_t accepted_length(const BlockOdds& odds, std::span<const double> coins);

/// Masses, not normalised, of the token that replaces a draft: what of the target's law the draft
/// does not stand for. Behind the last draft the token follows the target's law as it is.
struct Remainder {
  std::vector<double> candidates;  ///< of each candidate of the draft
  double others = 0;               ///< of all other tokens, shared as the target shares it
  double all = 0;                  ///< the sum
};

/// The remainder in place of `next`; `weight` is that of the accepted length before it.
Remainder remainder(const JudgedDraft& next, double weight);

/// The random numbers of a block: one coin for each length, and the share at which the token behind
/// the accepted drafts is drawn.
struct BlockNumbers {
  std::vector<double> coins = {};  ///< [k]
  double share = 0;
};

/// Those of `seed`. They are counted by the position of the anchor, which no two blocks of a
/// sequence share: a number that helped to reject a draft says something about the text before it,
/// and so may not judge the next draft of that position.
BlockNumbers block_numbers(uint64_t seed, int64_t anchor_position, std::size_t num_drafts);

/// The random number that draft `index` behind the anchor is drawn with, if block verification is
/// to judge it.
double draft_share(uint64_t seed, int64_t anchor_position, int64_t index);

}  // namespace di::sampling
