#include "engine/cost_profile.h"

#include <algorithm>
#include <vector>

#include "cache/layout.h"
#include "engine/clock.h"

namespace di::engine {
namespace {

/// The same for all shapes, as far as there is room: their costs are compared.
constexpr int64_t kPromptTokens = 16;

/// Steps of a shape before those that count: a device runs the first one, and records the second.
constexpr int64_t kWarmSteps = 2;
constexpr int64_t kSteps = kWarmSteps + sched::kProfileRepeats - 1;

/// Tokens of each prompt of a shape; below 1 when there is no room for its steps.
int64_t prompt_tokens_of(const ProfileRoom& room, const sched::ProfileShape& shape) {
  const int64_t left =
      std::min<int64_t>(room.context, cache::kBlockTokens) - 1 - kSteps * shape.rows_each;
  return std::min({kPromptTokens, room.limits.max_num_batched_tokens / shape.sequences, left});
}

/// Sequences of one shape, each in the slot and block of its number.
class Profile {
 public:
  Profile(Runner& runner, const ProfileRoom& room, const sched::ProfileShape& shape)
      : runner_(runner), room_(room), shape_(shape), prompt_tokens_(prompt_tokens_of(room, shape)) {
    sampling::SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    params.max_tokens = sampling::kMaxTokens;
    params_ = std::make_shared<const sampling::SamplingParams>(params);
  }

  /// All steps, one behind the other as in an engine that is busy: each prompt, with drafts behind
  /// it for the first step, then those of the shape. What the last of these took; nothing when one
  /// failed or became another shape.
  std::vector<sched::StepSeconds> run() {
    runner_.submit(admission());
    for (int64_t i = 0; i < kSteps; ++i)
      runner_.submit(step(1 + i));
    bool is_sound = runner_.collect().error.empty();
    std::vector<sched::StepSeconds> repeats;
    for (int64_t i = 0; i < kSteps; ++i) {
      const StepResult result = runner_.collect();
      const int64_t wanted = shape_.sequences * (shape_.rows_each - 1);
      is_sound = is_sound && result.error.empty() && result.num_draft_rows == wanted;
      if (i >= kWarmSteps) repeats.push_back({result.seconds, result.draft_seconds});
      experts_ = result.experts;
    }
    return is_sound ? repeats : std::vector<sched::StepSeconds>();
  }

  /// What the last step held: the sequences have little text.
  sched::StepShape step_shape() const {
    const int64_t keys = prompt_tokens_ + shape_.rows_each;
    return {
        .rows = shape_.rows(),
        .key_pairs = shape_.rows() * keys,
        .experts = experts_,
        .drafting = shape_.drafting ? shape_.sequences : 0};
  }

 private:
  StepInputs admission() const {
    StepInputs inputs{.step = 0, .draft_context = true};
    for (int64_t s = 0; s < shape_.sequences; ++s) {
      auto admission = std::make_shared<Admission>();
      admission->sampling = params_;
      for (int64_t i = 0; i < prompt_tokens_; ++i)
        admission->tokens.push_back(token(s * kPromptTokens + i));
      admission->num_prompt_tokens = prompt_tokens_;
      sched::PlannedSequence rows = rows_of(s);
      rows.admitted = rows.is_prefill = true;
      rows.num_rows = prompt_tokens_;
      rows.new_blocks = {static_cast<int32_t>(s)};
      inputs.sequences.push_back({rows, std::move(admission), shape_.rows_each > 1});
    }
    return inputs;
  }

  StepInputs step(int64_t number) const {
    StepInputs inputs{
        .step = number, .draft_context = shape_.drafting, .max_verified = shape_.rows_each - 1};
    for (int64_t s = 0; s < shape_.sequences; ++s) {
      sched::PlannedSequence rows = rows_of(s);
      rows.start = prompt_tokens_ + (number - 1) * shape_.rows_each;
      rows.num_rows = 1;
      rows.num_drafts = shape_.rows_each - 1;
      inputs.sequences.push_back({rows, nullptr, shape_.drafting});
    }
    return inputs;
  }

  sched::PlannedSequence rows_of(int64_t sequence) const {
    sched::PlannedSequence rows;
    rows.id = sequence;
    rows.slot = static_cast<int32_t>(sequence);
    rows.prompt_tokens = prompt_tokens_;
    rows.samples = true;
    return rows;
  }

  /// Some token; different ones, so that rows choose different experts.
  int32_t token(int64_t index) const {
    return static_cast<int32_t>((index * 7919 + 13) % room_.vocab_size);
  }

  Runner& runner_;
  const ProfileRoom& room_;
  sched::ProfileShape shape_;
  const int64_t prompt_tokens_;
  std::shared_ptr<const sampling::SamplingParams> params_;
  double experts_ = 0;  // of the last step
};

bool has_room(const ProfileRoom& room, const sched::ProfileShape& shape) {
  return shape.sequences <= room.num_blocks && prompt_tokens_of(room, shape) >= 1;
}

/// False when a step failed.
bool measure(
    Runner& runner,
    const ProfileRoom& room,
    const sched::ProfileShape& shape,
    sched::DraftCosts& costs
) {
  Profile profile(runner, room, shape);
  const std::vector<sched::StepSeconds> repeats = profile.run();
  if (repeats.empty()) return false;
  costs.observe_profile(profile.step_shape(), repeats);
  return true;
}

}  // namespace

void profile_costs(
    Runner& runner, const ProfileRoom& room, double seconds, sched::DraftCosts& costs
) {
  const double end = steady_seconds() + seconds;
  for (const sched::ProfileShape& shape : sched::profile_shapes(room.limits)) {
    if (!has_room(room, shape) || !sched::fits_profile(shape, costs, end - steady_seconds()))
      continue;
    if (!measure(runner, room, shape, costs)) return;
  }
}

}  // namespace di::engine
