#include "engine/cuda/cuda_device.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "ops/cuda/expert_counts.h"
#include "ops/cuda/waits.h"

namespace di::engine::cuda {
namespace {

using sampling::cuda::Drawn;
using sampling::cuda::DrawRow;
using sampling::cuda::SlotParams;
using sampling::cuda::VerifyBlock;

/// Best tokens that a recorded step's draws have room for.
int64_t padded_tops(int64_t most) {
  return most == 0 ? 0 : most <= 20 ? 20 : sampling::kMaxTopLogprobs;
}

/// Bytes of the counts of experts in front of a step's results: two numbers for each layer.
int64_t count_bytes(const ModelConfig& config) {
  return align_up(2 * config.num_hidden_layers * static_cast<int64_t>(sizeof(int32_t)), 16);
}

/// Tokens of the mean expert, summed over the layers: what the rows of a step choose.
double mean_experts(const ModelConfig& config, int64_t rows, int64_t kept, int64_t border) {
  const int64_t after = border < 0 ? 0 : config.num_hidden_layers - border;
  const int64_t choices =
      (rows * (config.num_hidden_layers - after) + kept * after) * config.moe.num_experts_per_tok;
  return static_cast<double>(choices) / static_cast<double>(config.moe.n_routed_experts);
}

Drawn slice(const Drawn& all, int64_t row) {
  const int64_t most = all.top_tokens.dim(1);
  return {
      .tokens = View<int32_t, 1>(all.tokens.data + row, 1),
      .logprobs = View<float, 1>(all.logprobs.data + row, 1),
      .finite = View<uint8_t, 1>(all.finite.data + row, 1),
      .top_tokens = View<int32_t, 2>(all.top_tokens.row(row), 1, most),
      .top_logprobs = View<float, 2>(all.top_logprobs.row(row), 1, most)};
}

}  // namespace

CudaDevice::CudaDevice(const DeviceParts& parts)
    : parts_(parts),
      owned_exec_(parts.pool, parts.ops.memory()),
      exec_(*owned_exec_),
      entries_(static_cast<std::size_t>(parts.cache.slot_pool().size())),
      slots_(
          parts.ops.memory(),
          {.slots = parts.cache.slot_pool().size(),
           .context = parts.context,
           .vocab_size = parts.model.config.vocab_size,
           .num_drafts = parts.num_drafts}
      ),
      recordings_(max_recordings(parts.cache.slot_pool().size(), parts.num_drafts)) {
  sampling::cuda::check_vocabulary(parts.model.config.vocab_size);
  exec_.scratch.reserve(static_cast<std::size_t>(parts.scratch_bytes));
  count_bytes_ = count_bytes(parts.model.config);
  result_bytes_ = count_bytes_ + planned_result_bytes(parts.max_results);
  results_ = parts.ops.memory().allocate(result_bytes_, "the draws of a step");
  if (parts.num_drafts > 0) drafts_.emplace(parts_, slots_);
}

CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(exec_.stream);  // nothing may run that uses what is now given back
}

bool CudaDevice::takes_another() const {
  if (launched_ == collected_) return true;
  return launched_ - collected_ < kDepth && !flight(launched_ - 1).has_drafts;
}

bool CudaDevice::done() const {
  const InFlight& oldest = flight(collected_);
  return !oldest.on_device || oldest.buffers.end.done();
}

void CudaDevice::launch(StepInputs inputs) {
  const InFlight& before = flight(launched_ + kRing - 1);
  InFlight& flight = this->flight(launched_++);
  flight.result = {};
  flight.result.step = inputs.step;
  flight.planned.clear();
  flight.on_device = false;
  flight.has_drafts = false;
  flight.at_once = inputs.at_once && before.on_device;
  flight.waited = flight.at_once && before.has_drafts;
  flight.buffers.begin();
  const int64_t waits = ops::cuda::num_waits();
  try {
    enqueue(inputs, flight);
  } catch (const std::exception& error) {
    fail(flight, error.what());
  }
  flight.result.launch_waits = ops::cuda::num_waits() - waits;
}

void CudaDevice::fail(InFlight& flight, const std::string& error) {
  for (const PlannedResult& planned : flight.planned)
    entries_[static_cast<std::size_t>(planned.slot)].ended = true;
  flight.result.sequences.clear();
  flight.planned.clear();
  flight.on_device = false;
  flight.result.error = error;
}

bool CudaDevice::is_plain_decode(const StepInputs& inputs) const {
  return inputs.forks.empty() && !any_scores_ && parts_.replay.mode == model::Replay::Mode::kOff &&
         std::all_of(
             step_.sequences.begin(),
             step_.sequences.end(),
             [](const model::SequenceInput& sequence) {
               return sequence.logits == model::LogitRows::kAll ||
                      (sequence.num_rows() == 1 && sequence.logits == model::LogitRows::kLast);
             }
         );
}

void CudaDevice::enqueue(const StepInputs& inputs, InFlight& flight) {
  step_.sequences.clear();
  draw_rows_.clear();
  blocks_.clear();
  num_forks_ = 0;
  drafting_.clear();
  draft_context_ = inputs.draft_context;
  score_tokens_.clear();
  score_tops_.clear();
  any_scores_ = false;
  most_ = 0;
  flight.buffers.start.record(exec_.stream);
  start_trace(inputs, flight);
  std::optional<ops::cuda::KernelTrace::Step> traced;
  if (flight.trace != nullptr) traced.emplace(device_trace_->kernels.kernels(), inputs.step);
  const std::vector<int64_t> num_drafts = drafts_to_verify(inputs, [this](int32_t slot) {
    const Entry& entry = entries_[static_cast<std::size_t>(slot)];
    return entry.ended ? nullptr : &entry.drafts;
  });
  for (std::size_t i = 0; i < inputs.sequences.size(); ++i) {
    plan_rows(inputs.sequences[i], num_drafts[i], flight);
    flight.result.num_draft_rows += num_drafts[i];
  }
  if (step_.sequences.empty()) return;
  for (const ForkOrder& order : inputs.forks)
    plan_fork(order, flight);
  flight.on_device = true;
  if (is_plain_decode(inputs)) {
    enqueue_decode(flight);
  } else {
    enqueue_mixed(inputs, flight);
  }
  flight.num_drafting = std::ssize(drafting_);
  flight.has_drafts = flight.num_drafting > 0 || flight.result.num_draft_rows > 0;
  if (drafts_) {
    flight.buffers.drawn.record(exec_.stream);
    if (!drafting_.empty() && !drafts_->enqueue(drafting_, exec_, flight.buffers))
      flight.result.is_typical = false;
    drafts_->fetch(flight.num_drafting, exec_, flight.buffers);
  }
  flight.buffers.end.record(exec_.stream);
}

View<const float, 2> CudaDevice::enqueue_pass(const model::PlacedStep& placed, StepTrace* trace) {
  const model::ForwardOptions options{
      .replay = parts_.replay, .draft_context = draft_context_, .keep_expert_ids = true};
  ops::Exec exec = exec_;
  if (trace != nullptr) exec.observer = &trace->events();
  const ops::OpTable& table = trace == nullptr ? parts_.ops : trace->events().table();
  const model::StepOutput output =
      run_placed(parts_.model, placed, parts_.cache, table, exec, options);
  enqueue_counts(placed, output.expert_ids);
  return output.logits;
}

void CudaDevice::enqueue_counts(
    const model::PlacedStep& placed, const View<const int32_t, 3>& expert_ids
) {
  const int64_t layers = parts_.model.config.num_hidden_layers;
  auto* counts = reinterpret_cast<int32_t*>(results_.get());
  ops::cuda::count_experts(
      exec_,
      {.busiest = View<int32_t, 1>(counts, layers),
       .used = View<int32_t, 1>(counts + layers, layers),
       .ids = expert_ids,
       .rows = placed.rows.view(),
       .kept = placed.kept ? placed.kept->view() : ops::Rows(),
       .border = placed.border,
       .experts = parts_.model.config.moe.n_routed_experts}
  );
}

void CudaDevice::start_trace(const StepInputs& inputs, InFlight& flight) {
  flight.trace.reset();
  if (inputs.trace == nullptr) return;
  if (inputs.trace != traced_) {
    device_trace_ = std::make_shared<DeviceTrace>(*inputs.trace, exec_.stream);
    inputs.trace->at_end([device = device_trace_](TraceRecorder& trace) {
      device->kernels.write(trace);
    });
    traced_ = inputs.trace;
  }
  flight.trace = std::make_unique<StepTrace>(inputs, device_trace_, parts_.ops, exec_.stream);
}

template <class T>
View<const T, 1> CudaDevice::place(const std::vector<T>& values, InFlight& flight) {
  const auto placed = exec_.scratch.array<T>(std::ssize(values));
  upload(placed.data, std::span<const T>(values), flight);
  return placed;
}

void CudaDevice::draw(
    const View<const float, 2>& logits, const View<const DrawRow, 1>& rows, const Drawn& results
) {
  const View<const SlotParams, 1> slots(slots_.params(), slots_.num_slots());
  sampling::cuda::draw(
      exec_.stream, {.logits = logits, .rows = rows, .slots = slots, .drawn = results}
  );
}

void CudaDevice::verify(
    const View<const float, 2>& logits,
    const View<const VerifyBlock, 1>& blocks,
    int64_t most_drafts,
    const Drawn& results
) {
  const View<const SlotParams, 1> slots(slots_.params(), slots_.num_slots());
  sampling::cuda::verify(
      exec_.stream,
      {.logits = logits,
       .blocks = blocks,
       .most_drafts = most_drafts,
       .slots = slots,
       .drawn = results,
       .num_drawn = View<int32_t, 1>(drafts_->num_drawn().data, blocks.dim(0))}
  );
}

void CudaDevice::reserve_results(const ResultShape& shape) {
  if (count_bytes_ + shape.bytes() <= result_bytes_) return;
  parts_.ops.memory().wait(exec_.stream);
  // Recorded steps write where the results lay before.
  recordings_.forget_graphs();
  result_bytes_ = count_bytes_ + 2 * shape.bytes();
  results_ = parts_.ops.memory().allocate(result_bytes_, "the draws of a step");
}

void CudaDevice::fetch(const model::PlacedStep& placed, InFlight& flight) {
  const Memory& memory = parts_.ops.memory();
  const int64_t bytes = count_bytes_ + flight.shape.bytes();
  memory.copy(flight.buffers.results(), results_.get(), bytes, exec_.stream);
  memory.copy(flight.buffers.finite(), placed.finite.data, placed.finite.size(), exec_.stream);
}

void CudaDevice::enqueue_decode(InFlight& flight) {
  int64_t longest = 0, own_rows = 0;
  bool any_drafts = false;
  for (const model::SequenceInput& sequence : step_.sequences) {
    longest = std::max<int64_t>(longest, std::ssize(sequence.tokens));
    own_rows += sequence.num_rows();
    any_drafts = any_drafts || sequence.num_rows() > 1;
  }
  const int64_t most_rows = any_drafts ? 1 + parts_.num_drafts : 1;
  const GraphKey key{
      recorded_size(own_rows, std::ssize(step_.sequences), most_rows, longest),
      padded_tops(most_),
      draft_context_};
  flight.shape = {key.size.rows, key.most};
  reserve_results(flight.shape);
  flight.buffers.reserve(count_bytes_ + flight.shape.bytes(), key.size.sequences);
  draw_rows_.resize(static_cast<std::size_t>(key.size.rows));
  if (drafts_) blocks_.resize(static_cast<std::size_t>(key.size.sequences));

  const Arena::Scope scope(exec_.scratch);
  const model::PlacedStep placed(
      parts_.model,
      step_,
      {.staging = flight.buffers.staging(),
       .padded_rows = key.size.rows,
       .padded_sequences = key.size.sequences,
       .most_rows = key.size.most_rows,
       .max_length = key.size.max_length},
      exec_
  );
  flight.expert_mean = mean_experts(parts_.model.config, own_rows, 0, /*border=*/-1);
  const View<const DrawRow, 1> rows =
      drafts_ ? View<const DrawRow, 1>() : place(draw_rows_, flight);
  const View<const VerifyBlock, 1> blocks = place(blocks_, flight);
  const auto pass = [&](StepTrace* trace) {
    const View<const float, 2> logits = enqueue_pass(placed, trace);
    const Drawn results = results_in(results_.get() + count_bytes_, flight.shape);
    if (drafts_) {
      verify(logits, blocks, most_rows - 1, results);
    } else {
      draw(logits, rows, results);
    }
  };
  flight.buffers.ready.record(exec_.stream);
  flight.result.is_typical = recordings_.run(
      key, exec_.stream, [&] { pass(flight.trace.get()); }, [&] { pass(nullptr); }
  );
  fetch(placed, flight);
}

void CudaDevice::enqueue_scores(
    const View<const float, 2>& logits, const Drawn& results, InFlight& flight
) {
  if (!any_scores_) return;
  const auto tokens = exec_.scratch.array<int32_t>(std::ssize(score_tokens_));
  const auto tops = exec_.scratch.array<int32_t>(std::ssize(score_tops_));
  upload(tokens.data, std::span<const int32_t>(score_tokens_), flight);
  upload(tops.data, std::span<const int32_t>(score_tops_), flight);
  sampling::cuda::score(
      exec_.stream, {.logits = logits, .tokens = tokens, .tops = tops, .drawn = results}
  );
}

void CudaDevice::enqueue_forks(
    const StepInputs& inputs,
    const View<const float, 2>& logits,
    const View<const DrawRow, 1>& rows,
    const Drawn& results,
    const InFlight& flight
) {
  for (std::size_t i = 0; i < inputs.forks.size(); ++i) {
    const sched::Fork& fork = inputs.forks[i].fork;
    parts_.cache.copy_slot(fork.parent_slot, fork.child_slot, exec_.stream);
    if (fork.tail_from >= 0) parts_.cache.copy_block(fork.tail_from, fork.tail_to, exec_.stream);
    const auto parent = std::find_if(
        flight.planned.begin(),
        flight.planned.end(),
        [&](const PlannedResult& planned) { return planned.slot == fork.parent_slot; }
    );
    DI_CHECK(
        parent != flight.planned.end() && parent->draw_row >= 0,
        "a fork happens in the step that draws its parent's first token"
    );
    const int64_t row = flight.planned[inputs.sequences.size() + i].draw_row;
    draw(
        View<const float, 2>(logits.row(parent->draw_row), 1, logits.dim(1)),
        View<const DrawRow, 1>(rows.data + row, 1),
        slice(results, row)
    );
  }
}

void CudaDevice::enqueue_mixed(const StepInputs& inputs, InFlight& flight) {
  flight.shape = {std::ssize(draw_rows_), most_};
  reserve_results(flight.shape);
  flight.buffers.reserve(count_bytes_ + flight.shape.bytes(), std::ssize(step_.sequences));
  const Arena::Scope scope(exec_.scratch);
  const model::PlacedStep placed(
      parts_.model, step_, {.replay = parts_.replay, .staging = flight.buffers.staging()}, exec_
  );
  flight.expert_mean = mean_experts(
      parts_.model.config,
      placed.rows.count(),
      placed.kept ? placed.kept->count() : 0,
      placed.border
  );
  const View<const DrawRow, 1> rows = place(draw_rows_, flight);
  const View<const VerifyBlock, 1> blocks = place(blocks_, flight);
  flight.buffers.ready.record(exec_.stream);
  const View<const float, 2> logits = enqueue_pass(placed, flight.trace.get());
  const Drawn results = results_in(results_.get() + count_bytes_, flight.shape);
  if (logits.dim(0) > 0) {
    const Drawn own{
        .tokens = View<int32_t, 1>(results.tokens.data, logits.dim(0)),
        .logprobs = View<float, 1>(results.logprobs.data, logits.dim(0)),
        .finite = View<uint8_t, 1>(results.finite.data, logits.dim(0)),
        .top_tokens = View<int32_t, 2>(results.top_tokens.data, logits.dim(0), most_),
        .top_logprobs = View<float, 2>(results.top_logprobs.data, logits.dim(0), most_)};
    enqueue_scores(logits, own, flight);
    if (drafts_) {
      verify(logits, blocks, parts_.num_drafts, own);
      const std::vector<int32_t> one_each(static_cast<std::size_t>(num_forks_), 1);
      upload(drafts_->num_drawn().data + blocks.dim(0), std::span<const int32_t>(one_each), flight);
    } else {
      draw(logits, View<const DrawRow, 1>(rows.data, logits.dim(0)), own);
    }
    enqueue_forks(inputs, logits, rows, results, flight);
  }
  fetch(placed, flight);
}

}  // namespace di::engine::cuda
