// Drafts: several tokens guessed at once for each of many sequences, from what the backbone's
// passes left in the rings of the draft stages. A draft changes nothing: neither caches nor tokens.
#pragma once

#include <vector>

#include "model/placed_step.h"

namespace di::model {

/// Chooses drafted tokens other than the best ones.
class DraftChooser {
 public:
  virtual ~DraftChooser() = default;

  /// Draft `index` of every sequence, whose logits [sequences, vocab_size] are complete. `tokens`
  /// [sequences] holds the best tokens; what is left there is proposed and conditions the drafts
  /// behind it. The chosen drafts of earlier indices lie before it, as in DraftOutput::tokens.
  /// Everything lies in the backend's memory: to be read and written by what is enqueued on
  /// exec.stream.
  virtual void choose(
      ops::Exec& exec,
      int64_t index,
      const View<const float, 2>& logits,
      const View<int32_t, 1>& tokens
  ) = 0;
};

/// What a draft yields, in the scratch of the backend's Exec; the drafts of one position lie side
/// by side. Draft i is the guess for the position i + 1 behind the anchor's.
struct DraftOutput {
  View<const int32_t, 2> tokens;    ///< [length, sequences]
  View<const float, 2> confidence;  ///< [length, sequences]: of σ's argument; σ of it estimates the
                                    ///< probability that the draft is accepted if those before are
  View<const float, 3> logits;  ///< [length, sequences, vocab_size]: what the token is of
};

/// The drafts of one sequence.
struct Drafts {
  std::vector<int32_t> tokens;    ///< [length]
  std::vector<float> confidence;  ///< [length], before σ
  std::vector<float> logits;      ///< [length, vocab_size]

  bool operator==(const Drafts&) const = default;
};

/// Drafts for all sequences of `step`, whose positions before the anchor went through forward()
/// with ForwardOptions::draft_context. The caller opens an Arena::Scope before and closes it when
/// it has read the results. A sequence's drafts depend on itself alone, bit for bit.
///
/// `chooser` may be nullptr: the best tokens are proposed.
/// Errors: Error{kInvalidArgument} when the model was loaded without its drafter, or the length is
/// out of range; Error{kUnsupported} for a shape that the backend has no kernel for.
/// Thread: one pass at a time for one KvCache and Exec.
DraftOutput draft(
    const Model& model,
    const DraftStep& step,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options = {},
    DraftChooser* chooser = nullptr
);

/// The same over placed sequences: only enqueues ops, and may be recorded. `anchors` [sequences]
/// are read when the pass runs; behind those of the step's own sequences they may be any ids of the
/// vocabulary, since the drafts there are nobody's.
DraftOutput run_draft(
    const Model& model,
    const PlacedStep& placed,
    const View<const int32_t, 1>& anchors,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options = {},
    DraftChooser* chooser = nullptr
);

}  // namespace di::model
