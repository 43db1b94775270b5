#include "engine/host_draft_chooser.h"

#include <utility>

namespace di::engine {

HostDraftChooser::HostDraftChooser(std::vector<DraftingSequence> sequences)
    : sequences_(std::move(sequences)), drafts_(sequences_.size()), laws_(sequences_.size()) {}

void HostDraftChooser::choose(
    ops::Exec& exec, int64_t, const View<const float, 2>& logits, const View<int32_t, 1>& tokens
) {
  const auto vocab = static_cast<std::size_t>(logits.dim(1));
  const auto run = [&](int64_t begin, int64_t end) {
    std::vector<double> scratch;
    for (int64_t s = begin; s < end; ++s) {
      const auto at = static_cast<std::size_t>(s);
      const DraftingSequence& sequence = sequences_[at];
      sampling::DraftChoice choice = sampling::choose_draft(
          *sequence.sampler,
          sequence.rule,
          {.logits = {logits.row(s), vocab},
           .anchor_position = sequence.anchor_position,
           .before = drafts_[at]},
          scratch
      );
      tokens(s) = choice.token;
      drafts_[at].push_back(choice.token);
      laws_[at].push_back(std::move(choice.law));
    }
  };
  exec.pool.parallel_for(std::ssize(sequences_), 1, run);
}

std::vector<sampling::DraftLaw> HostDraftChooser::take_laws(std::size_t sequence) {
  return std::move(laws_[sequence]);
}

}  // namespace di::engine
