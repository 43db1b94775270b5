// What a step yielded: counts, scores, draws and drafts, as they arrive in pinned memory.
#include <exception>
#include <numeric>

#include "engine/cuda/cuda_device.h"

namespace di::engine::cuda {
namespace {

using sampling::cuda::Drawn;

/// Row `row` of the results as the processor's sampler would have told it, with `top` best tokens.
sampling::Draw draw_of(const Drawn& results, int64_t row, int64_t top) {
  sampling::Draw draw{
      .token = results.tokens(row),
      .logprob = results.logprobs(row),
      .finite = results.finite(row) != 0};
  for (int64_t i = 0; i < top && draw.finite; ++i) {
    if (results.top_tokens(row, i) < 0) break;
    draw.top.push_back({results.top_tokens(row, i), results.top_logprobs(row, i)});
  }
  return draw;
}

}  // namespace

StepResult CudaDevice::collect() {
  const InFlight& before = flight(collected_ + kRing - 1);
  InFlight& flight = this->flight(collected_++);
  if (!flight.on_device) return std::move(flight.result);
  try {
    flight.buffers.end.wait();
    read_times(before, flight);
    if (flight.trace != nullptr) flight.trace->write(flight.buffers.start, flight.buffers.end);
    read_counts(flight);
    read_results(flight);
  } catch (const std::exception& error) {
    fail(flight, error.what());
  }
  return std::move(flight.result);
}

// What a step takes is the time since the one before, where its orders were there by then. Behind a
// step with drafts the device stands still until the next one is placed, which is a part of making
// drafts. A step without drafts that stood still is no example of one in a row of its like.
void CudaDevice::read_times(const InFlight& before, InFlight& flight) const {
  const StepBuffers& now = flight.buffers;
  const ops::cuda::Event& begin = flight.at_once ? before.buffers.end : now.start;
  StepResult& result = flight.result;
  result.seconds = now.end.seconds_since(begin);
  if (flight.num_drafting > 0)
    result.draft_seconds =
        now.end.seconds_since(now.drawn) + (flight.waited ? now.ready.seconds_since(begin) : 0);
  result.is_typical = result.is_typical && (flight.has_drafts || !flight.waited);
}

void CudaDevice::read_counts(InFlight& flight) {
  const auto* busiest = reinterpret_cast<const int32_t*>(flight.buffers.results());
  const int64_t layers = parts_.model.config.num_hidden_layers;
  const auto* used = busiest + layers;
  flight.result.expert_max = std::accumulate(busiest, used, 0.0);
  flight.result.experts = std::accumulate(used, used + layers, 0.0) / static_cast<double>(layers);
  flight.result.expert_mean = flight.expert_mean;
}

void CudaDevice::read_results(InFlight& flight) {
  for (std::size_t i = 0; i < flight.planned.size(); ++i) {
    const PlannedResult& planned = flight.planned[i];
    SequenceResult& result = flight.result.sequences[i];
    Entry& entry = entries_[static_cast<std::size_t>(planned.slot)];
    if (result.skipped) continue;
    if (entry.ended) {  // by the step before, after this one was launched
      result.skipped = planned.draw_row >= 0;
      continue;
    }
    const bool is_sure = planned.verified.count() == 0;  // of drafts, only what is drawn counts
    if (is_sure && planned.sequence >= 0 && flight.buffers.finite()[planned.sequence] == 0) {
      entry.ended = true;
      result.end = DrawEnd::kNotFinite;
      continue;
    }
    read_scores(flight, planned, result);
    if (planned.draw_row >= 0) read_draws(flight, planned, result);
    if (planned.drafting >= 0) read_drafts(flight, planned, result);
  }
}

void CudaDevice::read_scores(
    const InFlight& flight, const PlannedResult& planned, SequenceResult& result
) {
  const Admission& admission = *entries_[static_cast<std::size_t>(planned.slot)].admission;
  const Drawn results = results_in(flight.buffers.results() + count_bytes_, flight.shape);
  for (int64_t i = 0; i < planned.num_scores; ++i) {
    sampling::Draw score =
        draw_of(results, planned.score_row + i, admission.sampling->top_logprobs);
    score.token = admission.tokens[static_cast<std::size_t>(planned.first_token + i)];
    result.prompt_scores.push_back(std::move(score));
  }
}

void CudaDevice::read_draws(
    const InFlight& flight, const PlannedResult& planned, SequenceResult& result
) {
  Entry& entry = entries_[static_cast<std::size_t>(planned.slot)];
  const sampling::SamplingParams& params = *entry.admission->sampling;
  const auto eos = static_cast<int32_t>(parts_.model.config.tokens.eos_token_id);
  const Drawn results = results_in(flight.buffers.results() + count_bytes_, flight.shape);
  const int64_t count =
      planned.drawn < 0 ? 1 : DraftPass::fetched_num_drawn(flight.buffers)[planned.drawn];
  for (int64_t i = 0; i < count && result.end == DrawEnd::kGoesOn; ++i) {
    sampling::Draw draw = draw_of(results, planned.draw_row + i, params.top_logprobs);
    if (!draw.finite) {
      result.end = DrawEnd::kNotFinite;
      break;
    }
    result.end = end_behind(params, eos, draw.token);
    // Block verification may put the very same token in the place of a draft.
    const bool is_behind =
        entry.by_block() && i + 1 == count && !sampling::ends_choice(params, eos, draw.token);
    if (i < planned.verified.count() && !is_behind &&
        draw.token == planned.verified.tokens[static_cast<std::size_t>(i)])
      ++result.drafts.num_accepted;
    result.draws.push_back(std::move(draw));
  }
  result.drafts.survivals = planned.verified.survivals;
  if (planned.verified.count() > 0) entry.num_tokens += std::ssize(result.draws);
  entry.ended = result.end != DrawEnd::kGoesOn;
}

void CudaDevice::read_drafts(
    const InFlight& flight, const PlannedResult& planned, SequenceResult& result
) {
  result.drafted = true;
  Entry& entry = entries_[static_cast<std::size_t>(planned.slot)];
  if (entry.ended) return;
  entry.drafts = drafts_->drafts_of(planned.drafting, flight.num_drafting, flight.buffers);
  entry.drafts.rule = entry.admission->rule;
}

}  // namespace di::engine::cuda
