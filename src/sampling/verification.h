// Whether drafted tokens may stay: the two rules by which a text keeps its law however it is
// drafted. Plain functions; who drafts, and how many drafts are verified, is decided elsewhere.
// docs/drafts.md compares the rules and says how they are proved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/view.h"

namespace di::sampling {

/// Exact-seed verification: how many of `drafts`, from the first one on, are what the target draws.
/// draws[i] is the target's own draw behind the drafts before i, with the random number of its
/// position; there is one more of them than drafts. draws[0 … result] are the next tokens, bit for
/// bit those of a run without drafts, whatever is drafted and however much of it is verified.
int64_t accepted_drafts(std::span<const int32_t> drafts, std::span<const int32_t> draws);

/// What block verification is given for one sequence: k drafts, and the distributions behind the
/// anchor and behind each of them, after every edit and cut.
struct DraftBlock {
  std::span<const int32_t> drafts;  ///< [k]
  View<const double, 2> target;     ///< [k + 1, vocab_size]: rows that sum to 1
  View<const double, 2> draft;      ///< [k, vocab_size]: what each draft was drawn from; or empty:
                                    ///< each was the only choice
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

BlockOdds block_odds(const DraftBlock& block);

/// The accepted length; `coins` [k] are independent uniform numbers in [0, 1), one for each length.
int64_t accepted_length(const BlockOdds& odds, std::span<const double> coins);

/// The mass of `token`, not normalised, as the one that follows `length` accepted drafts: of the
/// target's law behind all k drafts, else of what of it the next draft does not stand for.
double next_mass(const DraftBlock& block, const BlockOdds& odds, int64_t length, int32_t token);

/// The token at `share` of those masses, 0 ≤ share < 1, in the order of ids.
int32_t next_token(const DraftBlock& block, const BlockOdds& odds, int64_t length, double share);

/// What becomes of a block.
struct BlockVerdict {
  int64_t accepted = 0;  ///< drafts that stay
  int32_t token = 0;     ///< the one behind them
};

/// Verifies a block with the random numbers of `seed`. They are counted by the position of the
/// anchor, which no two blocks of a sequence share: a number that helped to reject a draft says
/// something about the text before it, and so may not judge the next draft of that position.
BlockVerdict verify_block(const DraftBlock& block, uint64_t seed, int64_t anchor_position);

/// The random number that draft `index` behind the anchor is drawn with, if it is to be verified by
/// verify_block().
double draft_share(uint64_t seed, int64_t anchor_position, int64_t index);

}  // namespace di::sampling
