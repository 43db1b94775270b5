// PlacedStep: everything of a step that its pass reads besides weights and caches, put where the
// ops of a backend read it. A pass over a placed step only enqueues ops.
#pragma once

#include <optional>

#include "model/model.h"
#include "model/row_set.h"

namespace di::model {

/// Bytes that a step of single rows never exceeds; what does is copied without staging.
inline constexpr int64_t kStagingBytes = int64_t{1} << 20;

/// How a step is placed.
struct PlaceOptions {
  Replay replay = {};
  std::byte* staging = nullptr;  ///< kStagingBytes of memory for the one copy; nullptr: it has none

  /// The size of a recorded step that this one is played on: it is filled up to it, and what its
  /// pass enqueues depends on these four numbers and the model alone. All its rows then have
  /// logits, none is an image, and replay is off. Of a draft only the sequences count. 0: as the
  /// step is.
  int64_t padded_rows = 0;
  int64_t padded_sequences = 0;  ///< 0 beside padded rows: as many, of one row each
  int64_t most_rows = 0;         ///< of a sequence
  int64_t max_length = 0;        ///< no row's position reaches it
};

/// Lives in exec.scratch and stays in its place until the pass is done.
struct PlacedStep {
  /// Plans and places. Throws Error{kInvalidArgument} when the step asks for logits of rows that
  /// bounded replay skips.
  PlacedStep(const Model& model, const Step& step, const PlaceOptions& options, ops::Exec& exec);
  /// The rows of a draft, for run_draft(). Those behind the anchors are given the noise token's
  /// embedding; all get logits, position by position: row i · sequences + s is draft i of sequence
  /// s. Sequences that fill it up are copies of the shortest, which a draft may have: it writes to
  /// no cache. Throws Error{kInvalidArgument} when the model was loaded without its drafter, or the
  /// length is out of range.
  PlacedStep(
      const Model& model, const DraftStep& step, const PlaceOptions& options, ops::Exec& exec
  );
  PlacedStep(const PlacedStep&) = delete;

  RowSet rows;                          ///< all rows
  View<const bf16* const, 1> given;     ///< [rows]: a row's own embedding or nullptr; may be empty
  int64_t block = 0;                    ///< rows of each sequence's draft; 0: this is no draft
  int64_t border = -1;                  ///< the layer at which `kept` takes over; −1: none does
  std::optional<RowSet> kept;           ///< rows of the decoder layers under bounded replay
  View<const int64_t, 1> kept_sources;  ///< [kept]: rows of `rows`
  View<const int64_t, 1> logit_rows;    ///< rows, of those computed last, that get logits
  View<uint8_t, 1> finite;              ///< [sequences], all 1 at first

 private:
  void place(const PlaceOptions& options, ops::Exec& exec);

  std::vector<const bf16*> planned_given_;
  std::vector<int64_t> planned_sources_;
  std::vector<int64_t> planned_logit_rows_;
  std::vector<uint8_t> planned_finite_;
};

/// The pass over a placed step; see forward().
StepOutput run_placed(
    const Model& model,
    const PlacedStep& placed,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
);

}  // namespace di::model
