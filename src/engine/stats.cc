#include "engine/stats.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace di::engine {
namespace {

// Json of each type that a field has.

Json to_json(int64_t value) {
  return value;
}

Json to_json(double value) {
  return value;
}

Json to_json(const Distribution& d) {
  return Json::Object{
      {"mean", d.mean}, {"p50", d.p50}, {"p90", d.p90}, {"p99", d.p99}, {"max", d.max}};
}

Json to_json(const std::vector<double>& values) {
  return Json::Array(values.begin(), values.end());
}

Json to_json(const EndingCounts& counts) {
  Json::Object object;
  for (std::size_t i = 0; i < counts.size(); ++i)
    object.emplace_back(name_of(static_cast<FinishReason>(i)), counts[i]);
  return object;
}

template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json(nullptr);
}

/// The line as it grows.
class Line {
 public:
  void add(const char* key, std::string_view value) {
    if (!text_.empty()) text_ += ' ';
    text_ += key;
    text_ += '=';
    text_ += value;
  }

  void add(const char* key, int64_t value) { add(key, std::to_string(value)); }
  void add(const char* key, std::optional<int64_t> value) {
    add(key, value ? std::to_string(*value) : "-");
  }
  void add(const char* key, std::optional<double> value, int decimals) {
    add(key, value ? fmt::format("{:.{}f}", *value, decimals) : "-");
  }
  void add_percent(const char* key, std::optional<double> share) {
    add(key, share ? fmt::format("{:.1f}%", *share * 100) : "-");
  }
  void add_part(const char* key, int64_t used, int64_t total) {
    add(key, fmt::format("{}/{}", used, total));
  }
  /// p50, p90 and p99 of seconds in another unit.
  void add_times(const char* key, const std::optional<Distribution>& d, double per_second) {
    const auto in_unit = [&](double seconds) { return seconds * per_second; };
    add(key,
        d ? fmt::format("{:.1f}/{:.1f}/{:.1f}", in_unit(d->p50), in_unit(d->p90), in_unit(d->p99))
          : "-");
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::optional<double> scaled(std::optional<double> value, double factor) {
  if (value) *value *= factor;
  return value;
}

constexpr double kMilliseconds = 1e3;
constexpr double kMicroseconds = 1e6;
constexpr double kGiga = 1e-9;

void add_drafts(const Stats& s, Line& line) {
  std::string rates;
  for (const double rate : s.draft_acceptance_by_position)
    rates += fmt::format("{}{:.1f}%", rates.empty() ? "" : "/", rate * 100);
  line.add_percent("draft_acceptance", s.draft_acceptance);
  line.add("draft_acceptance_by_position", rates.empty() ? "-" : rates);
  line.add("drafts_verified", s.drafts_verified);
  line.add("drafts_accepted", s.drafts_accepted);
  line.add("drafts_per_sequence", s.drafts_per_sequence, 2);
  line.add("draft_confidence_error", s.draft_confidence_error, 3);
  line.add("tokens_per_sequence_step", s.tokens_per_sequence_step, 2);
  line.add_percent("draft_cost_error", s.draft_cost_error);
  line.add("draft_advantage", s.draft_advantage, 3);
  line.add("num_draft_pauses", s.num_draft_pauses);
}

}  // namespace

double percentile(const std::vector<double>& sorted, double percent) {
  const double count = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(count) - 1];
}

std::optional<Distribution> distribution_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values)
    sum += value;
  return Distribution{
      .mean = sum / static_cast<double>(values.size()),
      .p50 = percentile(values, 50),
      .p90 = percentile(values, 90),
      .p99 = percentile(values, 99),
      .max = values.back()};
}

std::string stats_line(const Stats& s) {
  Line line;
  line.add("step", s.total_steps);
  line.add("prefill_rows", s.last_prefill_rows);
  line.add("decode_rows", s.last_decode_rows);
  line.add("cur_steps/s", s.last_steps_per_second, 2);
  line.add("steps/s", s.steps_per_second, 2);
  line.add("cur_tokens/s", s.last_output_tokens_per_second, 1);
  line.add("prefill_tokens/s", s.prefill_tokens_per_second, 1);
  line.add("output_tokens/s", s.output_tokens_per_second, 1);
  add_drafts(s, line);
  line.add("expert_imbalance", s.expert_imbalance, 2);
  line.add("running", s.num_running);
  line.add("waiting", s.num_waiting);
  line.add("chunked", s.num_chunked);
  line.add("waiting_tokens", s.waiting_tokens);
  line.add_percent("token_budget", s.token_budget_use);
  line.add_part("blocks", s.blocks_used, s.blocks_total);
  line.add_part("slots", s.slots_used, s.slots_total);
  line.add_percent("prefill_steps", s.prefill_step_share);
  line.add_percent("decode_steps", s.decode_step_share);
  line.add_percent("prompt_cache", s.prompt_cache_share);
  line.add_times("ttft_ms", s.ttft_seconds, kMilliseconds);
  line.add_times("token_ms", s.output_token_seconds, kMilliseconds);
  line.add("prompt_tokens", s.mean_prompt_tokens, 1);
  line.add("output_tokens", s.mean_output_tokens, 1);
  line.add("finished", s.num_finished);
  line.add("preempted", s.num_preempted);
  line.add("aborted", s.num_aborted);
  line.add("failed", s.num_failed);
  line.add("query_key_pairs", s.last_query_key_pairs);
  line.add("max_keys", s.last_max_keys);
  line.add("min_keys", s.last_min_keys);
  line.add("attention_gflops/s", scaled(s.attention_flops_per_second, kGiga), 1);
  line.add("gflops/s", scaled(s.flops_per_second, kGiga), 1);
  line.add_percent("utilization", s.flops_utilization);
  line.add_times("step_ms", s.step_seconds, kMilliseconds);
  line.add_times("plan_us", s.plan_seconds, kMicroseconds);
  line.add_times("apply_us", s.apply_seconds, kMicroseconds);
  line.add_percent("device", s.device_use);
  return line.take();
}

// Every field of Stats in order; the size of Stats proves that none is missing.
#define DI_STATS_FIELDS(X)         \
  X(window_seconds)                \
  X(window_steps)                  \
  X(steps_per_second)              \
  X(prefill_tokens_per_second)     \
  X(output_tokens_per_second)      \
  X(finished_per_second)           \
  X(device_use)                    \
  X(token_budget_use)              \
  X(prefill_step_share)            \
  X(decode_step_share)             \
  X(prompt_cache_share)            \
  X(step_seconds)                  \
  X(plan_seconds)                  \
  X(apply_seconds)                 \
  X(ttft_seconds)                  \
  X(output_token_seconds)          \
  X(last_steps_per_second)         \
  X(last_output_tokens_per_second) \
  X(last_prefill_rows)             \
  X(last_decode_rows)              \
  X(last_query_key_pairs)          \
  X(last_max_keys)                 \
  X(last_min_keys)                 \
  X(num_running)                   \
  X(num_waiting)                   \
  X(num_chunked)                   \
  X(waiting_tokens)                \
  X(blocks_used)                   \
  X(blocks_total)                  \
  X(block_use)                     \
  X(slots_used)                    \
  X(slots_total)                   \
  X(slot_use)                      \
  X(num_finished)                  \
  X(num_aborted)                   \
  X(num_failed)                    \
  X(num_preempted)                 \
  X(mean_prompt_tokens)            \
  X(mean_output_tokens)            \
  X(mean_context_tokens)           \
  X(flops_per_second)              \
  X(attention_flops_per_second)    \
  X(flops_utilization)             \
  X(expert_imbalance)              \
  X(drafts_verified)               \
  X(drafts_accepted)               \
  X(draft_acceptance)              \
  X(draft_acceptance_by_position)  \
  X(drafts_per_sequence)           \
  X(draft_confidence_error)        \
  X(tokens_per_sequence_step)      \
  X(draft_cost_error)              \
  X(draft_advantage)               \
  X(num_draft_pauses)              \
  X(total_control_steps)           \
  X(uptime_seconds)                \
  X(total_steps)                   \
  X(total_requests)                \
  X(total_refused)                 \
  X(total_endings)                 \
  X(total_prefill_tokens)          \
  X(total_output_tokens)           \
  X(total_preempted)               \
  X(total_recomputed_tokens)

#define DI_SIZE(field) +sizeof(Stats::field)
static_assert(
    sizeof(Stats) == 0 DI_STATS_FIELDS(DI_SIZE), "DI_STATS_FIELDS lists every field once"
);
#undef DI_SIZE

Json stats_json(const Stats& s) {
  Json::Object object;
#define DI_ADD(field) object.emplace_back(#field, to_json(s.field));
  DI_STATS_FIELDS(DI_ADD)
#undef DI_ADD
  return object;
}

#undef DI_STATS_FIELDS

}  // namespace di::engine
