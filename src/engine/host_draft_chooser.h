// HostDraftChooser: drafts by each sequence's own sampler, on the processor.
#pragma once

#include <vector>

#include "model/draft.h"
#include "sampling/draft_law.h"

namespace di::engine {

/// A sequence that drafts.
struct DraftingSequence {
  sampling::Sampler* sampler = nullptr;
  sampling::VerificationRule rule = {};
  int64_t anchor_position = 0;
};

/// Chooses each draft as the request asks for (sampling/draft_law.h), and keeps what verification
/// needs of it. Logits that lie in a device's memory are fetched.
///
/// Thread: one pass at a time.
class HostDraftChooser final : public model::DraftChooser {
 public:
  /// Sequences in the order of the draft step.
  explicit HostDraftChooser(std::vector<DraftingSequence> sequences);

  void choose(
      ops::Exec& exec,
      int64_t index,
      const View<const float, 2>& logits,
      const View<int32_t, 1>& tokens
  ) override;

  /// What each draft of a sequence was drawn from, first draft first.
  std::vector<sampling::DraftLaw> take_laws(std::size_t sequence);

 private:
  /// Every sequence's draft, for logits in the machine's memory.
  std::vector<int32_t> choose_here(ops::Exec& exec, const View<const float, 2>& logits);

  std::vector<DraftingSequence> sequences_;
  std::vector<std::vector<int32_t>> drafts_;           // of each sequence so far
  std::vector<std::vector<sampling::DraftLaw>> laws_;  // beside them
};

}  // namespace di::engine
