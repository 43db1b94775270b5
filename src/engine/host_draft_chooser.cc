#include "engine/host_draft_chooser.h"

#include <utility>

#include "ops/place.h"

namespace di::engine {

HostDraftChooser::HostDraftChooser(std::vector<DraftingSequence> sequences)
    : sequences_(std::move(sequences)), drafts_(sequences_.size()), laws_(sequences_.size()) {}

void HostDraftChooser::choose(
    ops::Exec& exec, int64_t, const View<const float, 2>& logits, const View<int32_t, 1>& tokens
) {
  const Memory& memory = exec.scratch.memory();
  std::vector<float> fetched;
  View<const float, 2> here = logits;
  if (!memory.is_host()) {
    fetched = ops::fetch(exec, logits);
    here.data = fetched.data();
  }
  const std::vector<int32_t> chosen = choose_here(exec, here);
  const auto bytes = static_cast<int64_t>(chosen.size() * sizeof(int32_t));
  memory.copy(tokens.data, chosen.data(), bytes, exec.stream);
  memory.wait(exec.stream);
}

std::vector<int32_t> HostDraftChooser::choose_here(
    ops::Exec& exec, const View<const float, 2>& logits
) {
  const auto vocab = static_cast<std::size_t>(logits.dim(1));
  std::vector<int32_t> tokens(sequences_.size());
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
      tokens[at] = choice.token;
      drafts_[at].push_back(choice.token);
      laws_[at].push_back(std::move(choice.law));
    }
  };
  exec.pool.parallel_for(std::ssize(sequences_), 1, run);
  return tokens;
}

std::vector<sampling::DraftLaw> HostDraftChooser::take_laws(std::size_t sequence) {
  return std::move(laws_[sequence]);
}

}  // namespace di::engine
