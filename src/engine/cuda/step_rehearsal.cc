#include "engine/cuda/step_rehearsal.h"

#include <algorithm>
#include <vector>

#include "base/math.h"
#include "engine/cuda/draft_pass.h"
#include "engine/cuda/slot_memory.h"
#include "engine/cuda/step_buffers.h"
#include "model/draft.h"
#include "sampling/cuda/drafts.h"
#include "sampling/cuda/verify.h"
#include "tensor/address_memory.h"

namespace di::engine::cuda {
namespace {

/// More than any device has: one piece, so that nothing is lost between pieces.
constexpr int64_t kAddresses = int64_t{1} << 42;

/// What a device gives out at once.
constexpr int64_t kGranule = int64_t{2} << 20;

}  // namespace

StepRehearsal::StepRehearsal(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const StepLimits& limits
)
    : ops_(ops),
      limits_(limits),
      model_(model::outline_model(checkpoint, ops, {.drafts = limits.num_drafts > 0})),
      cache_(
          cache::make_layout(model_.config),
          ceil_div(limits.context, cache::kBlockTokens),
          limits.num_slots,
          address_memory()
      ),
      addresses_(address_memory().allocate(kAddresses, "a rehearsal")),
      stream_(ops.memory().make_stream()),
      scratch_(address_memory()),
      exec_{pool, scratch_, nullptr, stream_.get()} {
  limits_.max_rows = std::min(limits.max_rows, limits.max_seqs * limits.context);
  scratch_.reserve(kAddresses);
}

model::Step StepRehearsal::step_of(int64_t rows, int64_t sequences) const {
  const auto* words = reinterpret_cast<const int32_t*>(addresses_.get());
  model::Step step;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t num_rows = rows * (s + 1) / sequences - rows * s / sequences;
    step.sequences.push_back(
        {.tokens = {words, static_cast<std::size_t>(limits_.context)},
         .start = limits_.context - num_rows,
         .slot = s,
         .block_table = words,
         .logits = rows == sequences ? model::LogitRows::kLast : model::LogitRows::kAll}
    );
  }
  return step;
}

void StepRehearsal::pass(const model::Step& step, const RecordedSize& size) {
  const Arena::Scope scope(scratch_);
  const model::PlacedStep placed(
      model_,
      step,
      {.replay = limits_.replay,
       .padded_rows = size.rows,
       .padded_sequences = size.sequences,
       .most_rows = size.most_rows,
       .max_length = size.max_length},
      exec_
  );
  const int64_t draws = limits_.max_rows + limits_.max_seqs;  // forks draw, too
  scratch_.take<sampling::cuda::DrawRow>(draws);
  scratch_.take<int32_t>(draws);  // scored tokens,
  scratch_.take<int32_t>(draws);  // and their best ones
  const bool drafts = limits_.num_drafts > 0;
  if (drafts)
    scratch_.take<sampling::cuda::VerifyBlock>(std::max(size.sequences, limits_.max_seqs));
  const model::ForwardOptions options{
      .replay = limits_.replay, .draft_context = drafts, .keep_expert_ids = true};
  run_placed(model_, placed, cache_, ops_, exec_, options);
}

void StepRehearsal::rehearse(int64_t rows, int64_t sequences) {
  const model::Step step = step_of(rows, sequences);
  ops::cuda::Graph::rehearse(exec_.stream, [&] { pass(step, {}); });
}

void StepRehearsal::decode(int64_t sequences, int64_t most_rows) {
  const int64_t rows = sequences * most_rows;
  const bool is_recorded = limits_.replay.mode == model::Replay::Mode::kOff;
  const RecordedSize size = recorded_size(rows, sequences, most_rows, limits_.context);
  pass(step_of(rows, sequences), is_recorded ? size : RecordedSize());
}

void StepRehearsal::draft(int64_t sequences) {
  const Arena::Scope scope(scratch_);
  const auto* words = reinterpret_cast<const int32_t*>(addresses_.get());
  model::DraftStep step{.sequences = {}, .anchors = {}, .length = limits_.num_drafts};
  for (int64_t s = 0; s < sequences; ++s) {
    step.sequences.push_back(
        {.tokens = {words, static_cast<std::size_t>(limits_.context)}, .slot = s}
    );
  }
  const int64_t padded = padded_rows(sequences);
  const model::PlacedStep placed(
      model_, step, {.replay = limits_.replay, .padded_sequences = padded}, exec_
  );
  scratch_.take<sampling::cuda::DraftRow>(padded);
  const View<const int32_t, 1> anchors = scratch_.array<int32_t>(padded);
  run_draft(model_, placed, anchors, cache_, ops_, exec_, {.replay = limits_.replay});
}

int64_t StepRehearsal::graph_bytes(int64_t count, const std::function<void()>& enqueue) {
  constexpr int64_t kSamples = 4;
  std::vector<ops::cuda::Graph> graphs;
  const auto bytes_of = [&](int64_t samples) {
    const int64_t before = ops_.memory().available();
    for (int64_t i = 0; i < samples; ++i) {
      graphs.push_back(ops::cuda::Graph::record(exec_.stream, enqueue));
      graphs.back().upload(exec_.stream);
    }
    ops_.memory().wait(exec_.stream);
    return std::max<int64_t>(0, before - ops_.memory().available());
  };
  // The first one brings what the driver keeps for all.
  const int64_t first = bytes_of(1);
  return first + (count - 1) * ceil_div(bytes_of(kSamples), kSamples);
}

int64_t StepRehearsal::all_graph_bytes() {
  int64_t bytes = graph_bytes(max_recordings(limits_.num_slots, limits_.num_drafts), [&] {
    decode(limits_.max_seqs, 1);
  });
  if (limits_.num_drafts > 0) {
    bytes += graph_bytes(max_draft_recordings(limits_.num_slots), [&] { draft(limits_.max_seqs); });
  }
  return bytes;
}

model::StepMemory StepRehearsal::measure() {
  const int64_t fewest = ceil_div(limits_.max_rows, limits_.context);  // sequences of a full step
  const auto both = [&](int64_t rows) {
    rehearse(rows, std::min(rows, fewest));
    rehearse(rows, std::min(rows, limits_.max_seqs));
  };
  for (int64_t rows = 1; rows < limits_.max_rows; rows *= 2)
    both(rows);
  both(limits_.max_rows);
  for (int64_t count = 1; count <= limits_.max_seqs; count = padded_rows(count) + 1) {
    ops::cuda::Graph::rehearse(exec_.stream, [&] {
      decode(count, 1);
      if (limits_.num_drafts == 0) return;
      decode(count, 1 + limits_.num_drafts);
      draft(count);
    });
  }
  const int64_t graphs = all_graph_bytes();
  const int64_t vocab_size = model_.config.vocab_size;
  const bool drafts = limits_.num_drafts > 0;
  const int64_t draft_bytes = drafts ? DraftPass::bytes(limits_.num_slots, limits_.num_drafts) : 0;
  const SlotMemory::Size slots{
      .slots = limits_.num_slots,
      .context = limits_.context,
      .vocab_size = vocab_size,
      .num_drafts = limits_.num_drafts};
  const int64_t buffers =
      align_up(draft_bytes, kGranule) + align_up(SlotMemory::bytes(slots), kGranule) +
      align_up(planned_result_bytes(limits_.max_rows + limits_.max_seqs), kGranule) +
      align_up(vocab_size * static_cast<int64_t>(sizeof(int32_t)), kGranule);
  return {
      .scratch = static_cast<int64_t>(scratch_.peak_bytes()), .graphs = graphs, .buffers = buffers};
}

}  // namespace di::engine::cuda
