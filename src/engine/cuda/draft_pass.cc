#include "engine/cuda/draft_pass.h"

#include <algorithm>

#include "engine/cuda/draft_chooser.h"
#include "engine/cuda/recorded_sizes.h"
#include "model/draft.h"

namespace di::engine::cuda {
namespace {

using ops::cuda::DraftPlace;
using sampling::cuda::DraftRow;

constexpr auto kWord = static_cast<int64_t>(sizeof(int32_t));

/// Copies to scratch of the exec by way of the step's pinned memory.
template <class T>
View<T, 1> place(const std::vector<T>& values, ops::Exec& exec, StepBuffers& buffers) {
  const auto count = std::ssize(values);
  const View<T, 1> placed = exec.scratch.array<T>(count);
  T* staged = buffers.uploads().take<T>(count);
  std::copy(values.begin(), values.end(), staged);
  exec.scratch.memory().copy(
      placed.data, staged, count * static_cast<int64_t>(sizeof(T)), exec.stream
  );
  return placed;
}

}  // namespace

bool has_edits(const sampling::SamplingParams& params) {
  const bool has_penalties = params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                             params.frequency_penalty != 0;
  const bool has_lists = !params.logit_bias.empty() || !params.allowed_token_ids.empty() ||
                         !params.banned_token_ids.empty() || !params.golden_token_ids.empty();
  const bool bans_ends = params.min_tokens > 0 || params.first_n_token_no_eos > 0;
  return has_penalties || has_lists || bans_ends;
}

DraftPass::DraftPass(const DeviceParts& parts, const SlotMemory& slots)
    : parts_(parts),
      slots_(slots),
      length_(parts.num_drafts),
      results_(parts.ops.memory().allocate(
          bytes(slots.num_slots(), parts.num_drafts), "the drafts of a step"
      )),
      recordings_(max_draft_recordings(slots.num_slots())) {}

int64_t DraftPass::bytes(int64_t slots, int64_t num_drafts) {
  return (2 * slots + 2 * num_drafts * padded_rows(slots)) * kWord;
}

View<int32_t, 1> DraftPass::num_drawn() const {
  return View<int32_t, 1>(reinterpret_cast<int32_t*>(results_.get()), 2 * slots_.num_slots());
}

View<int32_t, 2> DraftPass::tokens(int64_t sequences) const {
  return View<int32_t, 2>(num_drawn().data + num_drawn().size(), length_, sequences);
}

View<float, 2> DraftPass::confidence(int64_t sequences) const {
  auto* behind = reinterpret_cast<float*>(tokens(sequences).data + length_ * sequences);
  return View<float, 2>(behind, length_, sequences);
}

bool DraftPass::enqueue(
    std::span<const DraftingSlot> drafting, ops::Exec& exec, StepBuffers& buffers
) {
  const int64_t padded = padded_rows(std::ssize(drafting));
  model::DraftStep step{.sequences = {}, .anchors = {}, .length = length_};
  std::vector<DraftPlace> places;
  std::vector<DraftRow> rows;
  Key key{.sequences = padded};
  for (const DraftingSlot& slot : drafting) {
    int32_t* tokens = slots_.tokens(slot.slot);
    step.sequences.push_back(
        {.tokens = {tokens, static_cast<std::size_t>(slot.known)},
         .slot = slot.slot,
         .prompt_length = slot.prompt_length}
    );
    places.push_back({tokens, slot.known, slot.drawn});
    const bool is_plain = !slot.by_block && !slot.has_edits;
    rows.push_back(
        {.position = slot.known - 1,
         .slot = slot.slot,
         .is_plain = is_plain,
         .records = slot.by_block ? slots_.records(slot.slot) : nullptr}
    );
    key.max_length =
        std::max(key.max_length, padded_length(slot.known + 2 * cache::kRollbackTokens));
    key.chooses = key.chooses || !is_plain;
  }
  places.resize(static_cast<std::size_t>(padded));
  rows.resize(static_cast<std::size_t>(padded));

  const Arena::Scope scope(exec.scratch);
  const model::PlacedStep placed(
      parts_.model,
      step,
      {.replay = parts_.replay,
       .staging = buffers.draft_staging(),
       .padded_sequences = padded,
       .max_length = key.max_length},
      exec
  );
  const View<DraftPlace, 1> placed_places = place(places, exec, buffers);
  const View<DraftRow, 1> placed_rows = place(rows, exec, buffers);
  const View<int32_t, 1> anchors = exec.scratch.array<int32_t>(padded);
  const auto pass = [&] {
    ops::cuda::anchor_rows(
        exec,
        {.places = placed_places,
         .num_drawn = num_drawn(),
         .rows = placed.rows.view(),
         .anchors = anchors,
         .anchor_positions = &placed_rows.data->position,
         .position_stride = sizeof(DraftRow),
         .vocab_size = parts_.model.config.vocab_size}
    );
    DraftChooser chooser(
        placed_rows, View<const sampling::cuda::SlotParams, 1>(slots_.params(), slots_.num_slots())
    );
    const Arena::Scope pass_scope(exec.scratch);
    const model::DraftOutput output = model::run_draft(
        parts_.model,
        placed,
        anchors,
        parts_.cache,
        parts_.ops,
        exec,
        {.replay = parts_.replay},
        key.chooses ? &chooser : nullptr
    );
    ops::cuda::store_drafts(
        exec, {.places = placed_places, .num_drawn = num_drawn(), .drafts = output.tokens}
    );
    const Memory& memory = parts_.ops.memory();
    const int64_t size = length_ * padded * kWord;
    memory.copy(tokens(padded).data, output.tokens.data, size, exec.stream);
    memory.copy(confidence(padded).data, output.confidence.data, size, exec.stream);
  };
  return recordings_.run(key, exec.stream, pass, pass);
}

void DraftPass::fetch(int64_t sequences, ops::Exec& exec, StepBuffers& buffers) const {
  const int64_t padded = sequences == 0 ? 0 : padded_rows(sequences);
  const int64_t size = (num_drawn().size() + 2 * length_ * padded) * kWord;
  buffers.reserve_drafts(size);
  parts_.ops.memory().copy(buffers.drafts(), results_.get(), size, exec.stream);
}

const int32_t* DraftPass::fetched_num_drawn(const StepBuffers& buffers) {
  return reinterpret_cast<const int32_t*>(buffers.drafts());
}

SlotDrafts DraftPass::drafts_of(int64_t sequence, int64_t sequences, const StepBuffers& buffers)
    const {
  const int64_t padded = padded_rows(sequences);
  const int32_t* tokens = fetched_num_drawn(buffers) + num_drawn().size();
  const auto* confidence = reinterpret_cast<const float*>(tokens + length_ * padded);
  return usable_drafts(
      {View<const int32_t, 2>(tokens, length_, padded),
       View<const float, 2>(confidence, length_, padded)},
      sequence,
      parts_.draft_temperatures,
      parts_.model.config.vocab_size
  );
}

}  // namespace di::engine::cuda
