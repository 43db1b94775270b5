// What one step computes: rows of many sequences, and what is wanted of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::model {

/// Which rows of a sequence get logits.
enum class LogitRows {
  kNone,  ///< an inner prefill chunk
  kLast,  ///< the row after which a token is sampled
  kAll,   ///< prompt log-probabilities, verification
};

/// A row whose embedding is given instead of looked up: image spans.
struct RowEmbedding {
  int64_t row = 0;              ///< counted from the sequence's first row in the step
  const bf16* value = nullptr;  ///< [hidden_size], in the machine's memory
};

/// One sequence's part of a step: its rows are the tokens from `start` on. Everything it points to
/// lives until the step is done; tokens, block table and image marks lie in the backend's memory.
struct SequenceInput {
  std::span<const int32_t> tokens;       ///< from position 0 to the last row's; at least one row
  int64_t start = 0;                     ///< position of the first row
  int64_t slot = 0;                      ///< state slot
  const int32_t* block_table = nullptr;  ///< covers the positions of all `tokens`
  int64_t prompt_length = 0;  ///< of the whole prompt; bounded replay counts from its end
  LogitRows logits = LogitRows::kLast;

  std::span<const uint8_t> is_image = {};         ///< for each of `tokens`, or empty: none
  std::span<const RowEmbedding> embeddings = {};  ///< one for each row that is an image position

  int64_t num_rows() const { return std::ssize(tokens) - start; }
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

/// One sequence that drafts. What it points to lies in the backend's memory until the draft is
/// done.
struct DraftInput {
  std::span<const int32_t> tokens;  ///< from position 0 to the anchor, the token that no step was
                                    ///< given yet; the context of all before it is in the rings
  int64_t slot = 0;                 ///< state slot
  int64_t prompt_length = 0;        ///< as in SequenceInput
};

/// Drafts of many sequences at once.
struct DraftStep {
  std::vector<DraftInput> sequences;
  View<const int32_t, 1> anchors;  ///< [sequences]: the last of each one's tokens, side by side
  int64_t length = 0;              ///< tokens to draft for each, 1 … cache::kRollbackTokens − 1
};

/// What a step yields, in the scratch of the backend's Exec.
struct StepOutput {
  View<const float, 2> logits;    ///< [rows with logits, vocab_size], sequence by sequence
  View<const uint8_t, 1> finite;  ///< [sequences]: 0 when a row's residual streams hold a NaN or
                                  ///< an infinity; what the step wrote of it is then worthless
  View<const int32_t, 3> expert_ids = {};  ///< [layers, rows, k], if they were to be kept; of
                                           ///< layers with fewer rows the first ones hold
};

}  // namespace di::model
