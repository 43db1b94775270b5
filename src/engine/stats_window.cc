#include "engine/stats_window.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace di::engine {
namespace {

double as_double(int64_t value) {
  return static_cast<double>(value);
}

/// sum / count, or nothing when there was nothing to count.
std::optional<double> ratio(double sum, double count) {
  if (!(count > 0)) return std::nullopt;
  return sum / count;
}

std::optional<double> ratio(int64_t sum, int64_t count) {
  return ratio(as_double(sum), as_double(count));
}

template <class T>
void add_by_position(const std::vector<T>& counts, std::vector<T>& sums) {
  if (sums.size() < counts.size()) sums.resize(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i)
    sums[i] += counts[i];
}

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts)
    sum += count;
  return sum;
}

void fill_last(const StepRecord& step, Stats& stats) {
  stats.last_steps_per_second = ratio(1.0, step.step_seconds);
  stats.last_output_tokens_per_second = ratio(as_double(step.num_output_tokens), step.step_seconds);
  stats.last_prefill_rows = step.num_prefill_rows;
  stats.last_decode_rows = step.num_decode_rows;
  stats.last_query_key_pairs = step.query_key_pairs;
  stats.last_max_keys = step.max_keys;
  stats.last_min_keys = step.min_keys;
}

}  // namespace

void DraftRecord::add(
    std::span<const double> survivals, int64_t num_accepted, int64_t num_tokens_gained
) {
  ++num_sequences;
  num_tokens += num_tokens_gained;
  const std::size_t positions = std::max(verified.size(), survivals.size());
  verified.resize(positions);
  accepted.resize(positions);
  expected.resize(positions);
  for (std::size_t i = 0; i < survivals.size(); ++i) {
    ++verified[i];
    accepted[i] += static_cast<int64_t>(i) < num_accepted ? 1 : 0;
    expected[i] += survivals[i];
  }
}

void StepRecord::add_keys(int64_t start, int64_t num_rows) {
  const int64_t keys = start + num_rows;
  query_key_pairs += num_rows * keys;
  min_keys = max_keys == 0 ? keys : std::min(min_keys, keys);
  max_keys = std::max(max_keys, keys);
}

/// What the slices of a window add up to.
struct StatsWindow::Sums {
  int64_t num_steps = 0;
  int64_t num_prefill_steps = 0;
  int64_t num_decode_steps = 0;
  StepRecord steps;  // sums of its fields
  Endings endings;
  std::vector<double> step_seconds;
  std::vector<double> plan_seconds;
  std::vector<double> apply_seconds;

  void add(const Slice& slice) {
    if (slice.step) add(*slice.step);
    endings.num_finished += slice.endings.num_finished;
    endings.num_aborted += slice.endings.num_aborted;
    endings.num_failed += slice.endings.num_failed;
    endings.prompt_tokens += slice.endings.prompt_tokens;
    endings.output_tokens += slice.endings.output_tokens;
    endings.context_tokens += slice.endings.context_tokens;
  }

  void add(const StepRecord& step) {
    ++num_steps;
    num_prefill_steps += step.num_prefill_rows > 0 ? 1 : 0;
    num_decode_steps += step.num_decode_rows > 0 ? 1 : 0;
    step_seconds.push_back(step.step_seconds);
    plan_seconds.push_back(step.plan_seconds);
    apply_seconds.push_back(step.apply_seconds);
    steps.step_seconds += step.step_seconds;
    steps.num_prefill_rows += step.num_prefill_rows;
    steps.num_decode_rows += step.num_decode_rows;
    steps.num_output_tokens += step.num_output_tokens;
    steps.num_cached_tokens += step.num_cached_tokens;
    steps.num_preempted += step.num_preempted;
    steps.flops += step.flops;
    steps.expert_max += step.expert_max;
    steps.expert_mean += step.expert_mean;
    add_by_position(step.drafts.verified, steps.drafts.verified);
    add_by_position(step.drafts.accepted, steps.drafts.accepted);
    add_by_position(step.drafts.expected, steps.drafts.expected);
    steps.drafts.num_sequences += step.drafts.num_sequences;
    steps.drafts.num_tokens += step.drafts.num_tokens;
  }

  void fill_rates(Stats& stats) const;
  void fill_shares(const StatsOptions& options, Stats& stats);
  void fill_endings(Stats& stats) const;
  void fill_drafts(Stats& stats) const;
};

void StatsWindow::Sums::fill_rates(Stats& stats) const {
  const auto rate = [&](double sum) { return ratio(sum, stats.window_seconds); };
  stats.steps_per_second = rate(as_double(num_steps));
  stats.prefill_tokens_per_second = rate(as_double(steps.num_prefill_rows));
  stats.output_tokens_per_second = rate(as_double(steps.num_output_tokens));
  stats.finished_per_second = rate(as_double(endings.num_finished));
  stats.device_use = rate(steps.step_seconds);
  stats.flops_per_second = rate(as_double(steps.flops.total));
  stats.attention_flops_per_second = rate(as_double(steps.flops.attention));
}

void StatsWindow::Sums::fill_shares(const StatsOptions& options, Stats& stats) {
  const int64_t num_rows = steps.num_prefill_rows + steps.num_decode_rows;
  stats.token_budget_use = ratio(num_rows, num_steps * options.max_num_batched_tokens);
  stats.prefill_step_share = ratio(num_prefill_steps, num_steps);
  stats.decode_step_share = ratio(num_decode_steps, num_steps);
  stats.prompt_cache_share =
      ratio(steps.num_cached_tokens, steps.num_cached_tokens + steps.num_prefill_rows);
  stats.expert_imbalance = ratio(steps.expert_max, steps.expert_mean);
  if (stats.flops_per_second)
    stats.flops_utilization = ratio(*stats.flops_per_second, options.peak_flops);
  stats.step_seconds = distribution_of(std::move(step_seconds));
  stats.plan_seconds = distribution_of(std::move(plan_seconds));
  stats.apply_seconds = distribution_of(std::move(apply_seconds));
}

void StatsWindow::Sums::fill_endings(Stats& stats) const {
  stats.num_finished = endings.num_finished;
  stats.num_aborted = endings.num_aborted;
  stats.num_failed = endings.num_failed;
  stats.num_preempted = steps.num_preempted;
  stats.mean_prompt_tokens = ratio(endings.prompt_tokens, endings.num_finished);
  stats.mean_output_tokens = ratio(endings.output_tokens, endings.num_finished);
  stats.mean_context_tokens = ratio(endings.context_tokens, as_double(endings.output_tokens));
}

void StatsWindow::Sums::fill_drafts(Stats& stats) const {
  const DraftRecord& drafts = steps.drafts;
  stats.drafts_verified = sum_of(drafts.verified);
  stats.drafts_accepted = sum_of(drafts.accepted);
  stats.draft_acceptance = ratio(stats.drafts_accepted, stats.drafts_verified);
  double error = 0;
  for (std::size_t i = 0; i < drafts.verified.size() && drafts.verified[i] > 0; ++i) {
    const double accepted = as_double(drafts.accepted[i]);
    stats.draft_acceptance_by_position.push_back(accepted / as_double(drafts.verified[i]));
    error += std::abs(accepted - drafts.expected[i]);
  }
  stats.drafts_per_sequence = ratio(stats.drafts_verified, drafts.num_sequences);
  stats.draft_confidence_error = ratio(error, as_double(stats.drafts_verified));
  stats.tokens_per_sequence_step = ratio(drafts.num_tokens, drafts.num_sequences);
}

StatsWindow::StatsWindow(const StatsOptions& options, double now)
    : options_(options), start_(now), begin_(now) {
  if (options.window_seconds < 0 || options.window_steps < 0 || options.peak_flops < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a window of statistics of {} seconds and {} steps on a machine of {} FLOP/s; expected "
            "0 (no limit, or unknown) or more of each",
            options.window_seconds,
            options.window_steps,
            options.peak_flops
        )
    );
  }
}

void StatsWindow::add_step(StepRecord step) {
  ++totals_.total_steps;
  totals_.total_prefill_tokens += step.num_prefill_rows;
  totals_.total_output_tokens += step.num_output_tokens;
  Slice slice{.time = step.time, .step = {}};
  for (const double seconds : std::exchange(step.ttft_seconds, {}))
    add_sample(ttft_, {step.time, seconds});
  for (const FinishedChoice& choice : std::exchange(step.finished, {}))
    count_ending(step.time, choice, slice.endings);
  slice.step = std::move(step);
  add_slice(std::move(slice));
}

void StatsWindow::add_ending(double now, const FinishedChoice& choice) {
  if (slices_.empty() || slices_.back().time < now) add_slice({.time = now, .step = {}});
  count_ending(now, choice, slices_.back().endings);
}

void StatsWindow::restart(double now) {
  begin_ = now;
  slices_.clear();
  num_steps_ = 0;
  ttft_.clear();
  output_token_.clear();
}

void StatsWindow::count_ending(double now, const FinishedChoice& choice, Endings& endings) {
  ++totals_.total_endings[static_cast<std::size_t>(choice.reason)];
  if (choice.output_tokens > 1) {
    const double seconds = choice.total_seconds - choice.ttft_seconds;
    add_sample(output_token_, {now, seconds / as_double(choice.output_tokens - 1)});
  }
  switch (choice.reason) {
    case FinishReason::kAborted:
    case FinishReason::kTimeout: ++endings.num_aborted; return;
    case FinishReason::kFailed: ++endings.num_failed; return;
    case FinishReason::kRefused: return;
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
    case FinishReason::kLength:
    case FinishReason::kContext: break;
  }
  const double outputs = as_double(choice.output_tokens);
  ++endings.num_finished;
  endings.prompt_tokens += choice.prompt_tokens;
  endings.output_tokens += choice.output_tokens;
  endings.context_tokens += outputs * (as_double(choice.prompt_tokens) + (outputs - 1) / 2);
}

void StatsWindow::add_slice(Slice slice) {
  const double now = slice.time;
  num_steps_ += slice.step ? 1 : 0;
  slices_.push_back(std::move(slice));
  while (is_full() || slices_.front().time <= begin(now)) {
    begin_ = slices_.front().time;
    num_steps_ -= slices_.front().step ? 1 : 0;
    slices_.pop_front();
  }
}

bool StatsWindow::is_full() const {
  return slices_.size() > kMaxSlices ||
         (options_.window_steps > 0 && num_steps_ > options_.window_steps);
}

double StatsWindow::begin(double now) const {
  return options_.window_seconds > 0 ? std::max(begin_, now - options_.window_seconds) : begin_;
}

void StatsWindow::add_sample(Samples& samples, const Sample& sample) {
  samples.push_back(sample);
  if (samples.size() > kMaxSamples) samples.pop_front();
}

std::optional<Distribution> StatsWindow::distribution(const Samples& samples, double now) const {
  std::vector<double> values;
  for (const Sample& sample : samples)
    if (sample.time > begin(now)) values.push_back(sample.seconds);
  return distribution_of(std::move(values));
}

void StatsWindow::fill_from_window(double now, Stats& stats) const {
  Sums sums;
  const StepRecord* last = nullptr;
  for (const Slice& slice : slices_) {
    if (slice.time <= begin(now)) continue;
    sums.add(slice);
    if (slice.step) last = &*slice.step;
  }
  stats.window_seconds = now - begin(now);
  stats.window_steps = sums.num_steps;
  sums.fill_rates(stats);
  sums.fill_shares(options_, stats);
  sums.fill_endings(stats);
  sums.fill_drafts(stats);
  if (last != nullptr) fill_last(*last, stats);
}

Stats StatsWindow::stats(double now, const sched::SchedulerCounts& counts) const {
  Stats stats = totals_;
  fill_from_window(now, stats);
  stats.ttft_seconds = distribution(ttft_, now);
  stats.output_token_seconds = distribution(output_token_, now);
  stats.num_running = counts.num_running;
  stats.num_waiting = counts.num_waiting;
  stats.num_chunked = counts.num_chunked;
  stats.waiting_tokens = counts.waiting_tokens;
  stats.blocks_used = counts.blocks_used;
  stats.blocks_total = counts.blocks_total;
  stats.block_use = ratio(counts.blocks_used, counts.blocks_total);
  stats.slots_used = counts.slots_used;
  stats.slots_total = counts.slots_total;
  stats.slot_use = ratio(counts.slots_used, counts.slots_total);
  stats.uptime_seconds = now - start_;
  stats.total_preempted = counts.num_preemptions;
  stats.total_recomputed_tokens = counts.num_recomputed_tokens;
  return stats;
}

}  // namespace di::engine
