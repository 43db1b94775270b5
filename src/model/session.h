// Session: one sequence's timeline on a model, fed in pieces of any size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/draft.h"

namespace di::model {

/// Image rows among the tokens of one feed.
struct ImageRows {
  std::vector<uint8_t> is_image;         ///< for each token, or empty: none
  std::vector<RowEmbedding> embeddings;  ///< one for each of them
};

/// Owns a sequence's share of the cache and its token list. Feeding tokens in one piece, in many,
/// or one by one gives the same caches and logits, bit for bit.
///
/// Thread: one at a time. Model, cache, table and exec outlive it.
class Session {
 public:
  Session(
      const Model& model,
      cache::KvCache& cache,
      const ops::OpTable& ops,
      ops::Exec& exec,
      const ForwardOptions& options = {}
  );

  /// Positions of the prompt, which bounded replay counts back from. To be set before the first
  /// feed; without replay it does not matter.
  void set_prompt_length(int64_t prompt_length) { prompt_length_ = prompt_length; }

  /// Appends tokens; returns the logits that are asked for [rows, vocab_size].
  /// Errors: Error{kInvalidArgument} for an id outside the vocabulary or a position at or above
  /// max_position_embeddings; Error{kOutOfMemory} when the cache has too few blocks left. Either
  /// way the session stays as it was.
  std::vector<float> feed(
      std::span<const int32_t> tokens,
      LogitRows logits = LogitRows::kLast,
      const ImageRows& images = {}
  );

  /// What the drafter guesses behind `anchor`, the token that follows all so far; the session stays
  /// as it is. Its options ask for draft_context, and it has tokens.
  /// Errors: as draft() has them; Error{kInvalidArgument} for an id outside the vocabulary.
  Drafts draft(int32_t anchor, int64_t length);

  /// All tokens so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const cache::SequenceState& state() const { return state_; }

 private:
  void check_token(int32_t token) const;

  /// The rows from `start` on, which are the newest tokens.
  std::vector<float> run(int64_t start, LogitRows logits, const ImageRows& images);

  const Model& model_;
  cache::KvCache& cache_;
  const ops::OpTable& ops_;
  ops::Exec& exec_;
  ForwardOptions options_;
  cache::SequenceState state_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> is_image_;  // for each token
  int64_t prompt_length_ = 0;
};

}  // namespace di::model
