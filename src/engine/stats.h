// Stats: what an engine did lately and since its start, as a struct, a line of text and JSON.
// docs/metrics.md has a row for each field.
//
// A quantity that nothing was measured for is absent: "-" in the line and null in JSON, never a
// made-up number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/request.h"

namespace di::engine {

/// What many measurements of one quantity look like. A percentile is the smallest measurement that
/// at least so many per cent of all do not exceed.
struct Distribution {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;

  bool operator==(const Distribution&) const = default;
};

/// A percentile as of a Distribution, of `sorted` ascending values, at least one; `percent` above
/// 0.
double percentile(const std::vector<double>& sorted, double percent);

/// Of `values`, in any order; nothing when there are none.
std::optional<Distribution> distribution_of(std::vector<double> values);

/// How many choices ended for each reason, in the order of FinishReason.
using EndingCounts = std::array<int64_t, static_cast<std::size_t>(FinishReason::kRefused) + 1>;

/// Values at one moment. "The window" is the time from `window_seconds` before that moment up to
/// it; a rate is what happened in the window divided by window_seconds, absent when that is 0.
/// Shares are between 0 and 1.
struct Stats {
  // The window.
  double window_seconds = 0;
  int64_t window_steps = 0;  ///< steps whose results came in the window

  // Rates and shares in the window.
  std::optional<double> steps_per_second;
  std::optional<double> prefill_tokens_per_second;  ///< prompt rows computed, again or not
  std::optional<double> output_tokens_per_second;
  std::optional<double> finished_per_second;
  std::optional<double> device_use;          ///< share of the time in which a step ran
  std::optional<double> token_budget_use;    ///< rows of the steps / rows they might have had
  std::optional<double> prefill_step_share;  ///< share of the steps that had prompt rows
  std::optional<double> decode_step_share;   ///< share of the steps that had decode rows
  std::optional<double> prompt_cache_share;  ///< share of prompt tokens that needed no computing

  // Times in the window, seconds.
  std::optional<Distribution> step_seconds;
  std::optional<Distribution> plan_seconds;          ///< on the host, a step
  std::optional<Distribution> apply_seconds;         ///< on the host, a step
  std::optional<Distribution> ttft_seconds;          ///< from arrival to the first token, a request
  std::optional<Distribution> output_token_seconds;  ///< a token after the first, mean of a choice

  // The newest step in the window.
  std::optional<double> last_steps_per_second;          ///< 1 / the step's own time
  std::optional<double> last_output_tokens_per_second;  ///< its tokens / its own time
  std::optional<int64_t> last_prefill_rows;
  std::optional<int64_t> last_decode_rows;
  std::optional<int64_t> last_query_key_pairs;  ///< Σ over sequences of rows · tokens seen
  std::optional<int64_t> last_max_keys;         ///< tokens that its longest sequence saw
  std::optional<int64_t> last_min_keys;         ///< tokens that its shortest sequence saw

  // Sequences and memory, now.
  int64_t num_running = 0;     ///< sequences with a slot
  int64_t num_waiting = 0;     ///< sequences without
  int64_t num_chunked = 0;     ///< running sequences whose prompt is not yet computed
  int64_t waiting_tokens = 0;  ///< tokens that waiting sequences have yet to compute
  int64_t blocks_used = 0;
  int64_t blocks_total = 0;
  std::optional<double> block_use;
  int64_t slots_used = 0;
  int64_t slots_total = 0;
  std::optional<double> slot_use;

  // Endings in the window, of choices.
  int64_t num_finished = 0;  ///< by EOS, a stop or a limit
  int64_t num_aborted = 0;   ///< from outside or by timeout
  int64_t num_failed = 0;
  int64_t num_preempted = 0;  ///< sequences that gave up their memory, to be computed again
  std::optional<double> mean_prompt_tokens;   ///< of the finished
  std::optional<double> mean_output_tokens;   ///< of the finished
  std::optional<double> mean_context_tokens;  ///< that an output token of theirs had before it

  // Arithmetic in the window; FLOPs are FP8-equivalent (model/flops.h).
  std::optional<double> flops_per_second;
  std::optional<double> attention_flops_per_second;
  std::optional<double> flops_utilization;  ///< of the peak; absent when no peak is given
  std::optional<double> expert_imbalance;   ///< tokens of the busiest expert / of the mean one

  // Drafts in the window.
  int64_t drafts_verified = 0;
  int64_t drafts_accepted = 0;
  std::optional<double> draft_acceptance;            ///< accepted / verified
  std::vector<double> draft_acceptance_by_position;  ///< up to the last position verified
  std::optional<double> drafts_per_sequence;         ///< verified, a sequence and step
  std::optional<double> draft_confidence_error;      ///< mean over drafts of |share accepted −
                                                     ///< share expected| at their position
  std::optional<double> tokens_per_sequence_step;    ///< that a sequence which decodes gains

  // Decisions about drafts, now.
  std::optional<double> draft_cost_error;  ///< mean |measured − expected| / expected step seconds
  std::optional<double> draft_advantage;   ///< tokens a second with drafts / without, at this load
  int64_t num_draft_pauses = 0;            ///< sequences that draft nothing for some steps
  int64_t total_control_steps = 0;         ///< steps without drafts, to compare with

  // Since the start.
  double uptime_seconds = 0;
  int64_t total_steps = 0;
  int64_t total_requests = 0;  ///< taken
  int64_t total_refused = 0;   ///< requests not taken
  EndingCounts total_endings = {};
  int64_t total_prefill_tokens = 0;
  int64_t total_output_tokens = 0;
  int64_t total_preempted = 0;
  int64_t total_recomputed_tokens = 0;  ///< by preemption
};

/// One line for people, without line end: key=value, always the same keys in the same order.
std::string stats_line(const Stats& stats);

/// An object with a member for each field, of the same name and in the same order.
Json stats_json(const Stats& stats);

}  // namespace di::engine
