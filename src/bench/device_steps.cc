#include "bench/device_steps.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "engine/make_device.h"

namespace di::bench {

DeviceSteps::DeviceSteps(
    const Options& options, const model::Model& model, const ops::OpTable& ops, ThreadPool& pool
)
    : options_(options),
      vocab_size_(model.config.vocab_size),
      length_(options.context + options.num_steps * (1 + options.num_drafts) + 1),
      blocks_each_(ceil_div(length_ + options.num_drafts, cache::kBlockTokens)),
      cache_(
          cache::make_layout(model.config),
          options.sequences * blocks_each_,
          options.sequences,
          ops.memory()
      ),
      device_(engine::make_device(
          {.model = model,
           .ops = ops,
           .cache = cache_,
           .pool = pool,
           .replay = {},
           .context = length_ + options.num_drafts,
           .num_drafts = options.num_drafts}
      )) {}

StepTimes DeviceSteps::prefill() {
  StepTimes times;
  for (int64_t sequence = 0; sequence < options_.sequences; ++sequence) {
    for (int64_t start = 0; start < options_.context; start += options_.chunk) {
      launch(
          {.sequences = {chunk_of(sequence, start)}, .draft_context = options_.num_drafts > 0},
          times
      );
    }
  }
  drain(times);
  return times;
}

StepTimes DeviceSteps::decode(int64_t num_steps, const StepDrafts& drafts) {
  DI_CHECK(drafts.verified == 0 || drafts.drafting, "drafts are verified where they are made");
  StepTimes times;
  for (int64_t i = 0; i < num_steps; ++i, ++decoded_) {
    engine::StepInputs inputs{.draft_context = drafts.drafting, .max_verified = drafts.verified};
    for (int64_t sequence = 0; sequence < options_.sequences; ++sequence) {
      inputs.sequences.push_back(rows_of(sequence, options_.context + decoded_, 1));
      inputs.sequences.back().rows.num_drafts = drafts.verified;
      inputs.sequences.back().drafts = drafts.drafting;
    }
    launch(std::move(inputs), times);
    if (drafts.verified == 0) continue;
    drain(times);
    if (std::exchange(has_drafts_, true) && num_verified_ < drafts.verified * options_.sequences)
      throw Error(ErrorCode::kUnsupported, "drafts are no tokens, or their confidences no numbers");
  }
  drain(times);
  has_drafts_ = drafts.drafting;
  return times;
}

engine::SequenceOrder DeviceSteps::rows_of(int64_t sequence, int64_t start, int64_t num_rows)
    const {
  engine::SequenceOrder order;
  order.rows.id = sequence;
  order.rows.slot = static_cast<int32_t>(sequence);
  order.rows.start = start;
  order.rows.num_rows = num_rows;
  order.rows.prompt_tokens = options_.context;
  order.rows.samples = start + num_rows >= options_.context;
  order.rows.is_prefill = start < options_.context;
  return order;
}

// Rows of a prompt; the first ones bring the sequence and all its blocks along.
engine::SequenceOrder DeviceSteps::chunk_of(int64_t sequence, int64_t start) const {
  engine::SequenceOrder order =
      rows_of(sequence, start, std::min(options_.chunk, options_.context - start));
  if (start > 0) return order;
  order.rows.admitted = true;
  for (int64_t block = 0; block < blocks_each_; ++block)
    order.rows.new_blocks.push_back(static_cast<int32_t>(sequence * blocks_each_ + block));
  auto admission = std::make_shared<engine::Admission>();
  auto sampling = std::make_shared<sampling::SamplingParams>();
  sampling->temperature = 0;
  sampling->ignore_eos = true;
  admission->sampling = std::move(sampling);
  for (int64_t i = 0; i < options_.context; ++i)
    admission->tokens.push_back(static_cast<int32_t>((i * 7 + sequence * 11 + 1) % vocab_size_));
  admission->num_prompt_tokens = options_.context;
  order.admission = std::move(admission);
  return order;
}

void DeviceSteps::launch(engine::StepInputs inputs, StepTimes& times) {
  if (!device_->takes_another()) collect(times);
  if (in_flight_ == 0) last_ = Clock::now();
  inputs.step = num_launched_++;
  device_->launch(std::move(inputs));
  ++in_flight_;
}

void DeviceSteps::collect(StepTimes& times) {
  const engine::StepResult result = device_->collect();
  --in_flight_;
  const Clock::time_point now = Clock::now();
  times.seconds.push_back(std::chrono::duration<double>(now - last_).count());
  times.device.push_back(result.seconds);
  last_ = now;
  num_verified_ = result.num_draft_rows;
  if (!result.error.empty()) throw Error(ErrorCode::kUnsupported, "a step failed: " + result.error);
  for (const engine::SequenceResult& sequence : result.sequences) {
    if (sequence.end != engine::DrawEnd::kGoesOn)
      throw Error(ErrorCode::kUnsupported, "the logits of a row are not finite");
  }
}

void DeviceSteps::drain(StepTimes& times) {
  while (in_flight_ > 0)
    collect(times);
}

}  // namespace di::bench
