// What one step computes: rows of many sequences, and what is wanted of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/number_formats.h"

namespace di::model {

/// Which rows of a sequence get logits.
enum class LogitRows {
  kNone,  ///< an inner prefill chunk
  kLast,  ///< the row after which a token is sampled
  kAll,   ///< prompt log-probabilities, verification
};

/// A row whose embedding is given instead of looked up: image spans.
struct RowEmbedding {
  int64_t row = 0;              ///< index into SequenceInput::tokens
  const bf16* value = nullptr;  ///< [hidden_size]
};

/// One sequence's part of a step. Everything it points to lives until the step is done.
struct SequenceInput {
  std::span<const int32_t> tokens;  ///< at positions start, start + 1, …; at least one
  int64_t start = 0;
  std::span<const int32_t> history;  ///< the tokens before `start`, oldest first; Engram reads the
                                     ///< last engram_max_ngram_size − 1 of them
  int64_t slot = 0;                  ///< state slot
  const int32_t* block_table = nullptr;  ///< covers positions up to start + tokens.size()
  int64_t prompt_length = 0;  ///< of the whole prompt; bounded replay counts from its end
  LogitRows logits = LogitRows::kLast;

  std::span<const uint8_t> is_image = {};          ///< for each of `tokens`, or empty: none
  std::span<const uint8_t> history_is_image = {};  ///< for each of `history`, or empty: none
  std::span<const RowEmbedding> embeddings = {};   ///< rows with an embedding of their own
};

/// Bounded replay of the decoder layers at prefill: only the last `keep` prompt rows pass through
/// them, and their window attention reaches no further back. An approximation that the model was
/// trained for; off is exact. Source: model specification section 5.3.
struct Replay {
  enum class Mode {
    kOff,
    kMask,     ///< computes every row with the narrowed windows: the slow oracle of kCompact
    kCompact,  ///< skips the rows before the kept suffix
  };
  Mode mode = Mode::kOff;
  int64_t keep = 0;
};

/// All rows of one step.
struct Step {
  std::vector<SequenceInput> sequences;
};

/// What a step yields.
struct StepOutput {
  std::vector<float> logits;  ///< [rows with logits, vocab_size], sequence by sequence
  std::vector<uint8_t>
      finite;  ///< [sequences]: 0 when a row's residual streams hold a NaN or an
               ///< infinity; what this step wrote of the sequence is then worthless
};

}  // namespace di::model
