#include "bench/serve_bench.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "bench/step_bytes.h"
#include "engine/record.h"
#include "ops/ops.h"

namespace di::bench {
namespace {

using engine::Distribution;

/// NAME_p50, NAME_p90, NAME_p99 and NAME_max in units of 1/scale; null when nothing was measured.
void set_times(
    Json& line, const std::string& name, const std::optional<Distribution>& seconds, double scale
) {
  const auto value = [&](double Distribution::*part) {
    return seconds ? Json((*seconds).*part * scale) : Json();
  };
  line.set(name + "_p50", value(&Distribution::p50));
  line.set(name + "_p90", value(&Distribution::p90));
  line.set(name + "_p99", value(&Distribution::p99));
  line.set(name + "_max", value(&Distribution::max));
}

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

/// What the requests of a run add up to.
struct RunSums {
  int64_t num_complete = 0;
  int64_t num_good = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<double> ttft, tpot, total;  // seconds
};

RunSums sum_up(const ServeRun& run, const ServeTarget& target) {
  RunSums sums;
  for (const ServedRequest& request : run.requests) {
    sums.prompt_tokens += request.prompt_tokens;
    sums.output_tokens += request.output_tokens;
    if (!request.complete) continue;
    ++sums.num_complete;
    sums.ttft.push_back(request.ttft());
    sums.total.push_back(request.total());
    if (request.output_tokens > 1) sums.tpot.push_back(request.time_per_token());
    const bool good =
        request.ttft() * 1e3 <= target.ttft_ms && request.time_per_token() * 1e3 <= target.tpot_ms;
    sums.num_good += good ? 1 : 0;
  }
  return sums;
}

class ServeBench {
 public:
  ServeBench(engine::Engine& engine, const ServeBenchOptions& options)
      : engine_(engine),
        options_(options),
        num_threads_(ThreadPool(engine.options().threads).num_threads()) {
    model_.vocab_size = engine.config().vocab_size;
    model_.context = engine.context();
    if (!options.prompts.empty()) model_.text = text_ids();
  }

  void warm_up() {
    TrafficOptions traffic = options_.traffic;
    traffic.num_requests = 1;
    traffic.output_tokens = 2;
    traffic.lengths = "fixed";
    serve(engine_, make_traffic(traffic, model_), {.id = "warm-up"});
  }

  Json run(std::size_t index) {
    const double point = options_.points[index];
    TrafficOptions options = options_.traffic;
    options.rate = options_.closed_loop ? 0 : point;
    const std::vector<TrafficRequest> traffic = make_traffic(options, model_);
    const bool last = index + 1 == options_.points.size();
    const ServeRun run = serve(
        engine_,
        traffic,
        {.id = fmt::format("point-{}", index),
         .concurrency = options_.closed_loop ? closed_loop_size(point) : 0,
         .trace = last ? options_.trace : "",
         .trace_steps = options_.trace_steps}
    );
    return line_of(point, run);
  }

 private:
  std::vector<int32_t> text_ids() const {
    std::vector<int32_t> ids =
        engine_.tokenizer().encode(read_text_file(options_.prompts), text::AddedTokens::kPlain);
    if (ids.empty()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: no text to cut prompts from; the file is empty", options_.prompts)
      );
    }
    return ids;
  }

  /// All at once is a loop that has room for all.
  int64_t closed_loop_size(double point) const {
    return point > 0 ? static_cast<int64_t>(point)
                     : std::max<int64_t>(1, options_.traffic.num_requests);
  }

  Json line_of(double point, const ServeRun& run) {
    const RunSums sums = sum_up(run, options_.target);
    Json line = Json::Object{
        {"name", options_.closed_loop ? "throughput" : "latency"},
        {"traffic", options_.traffic.lengths},
        {"prompts", options_.prompts.empty() ? "random ids" : "text"},
        {"seed", options_.traffic.seed},
        {"requests", std::ssize(run.requests)},
        {"failed", std::ssize(run.requests) - sums.num_complete}};
    if (options_.closed_loop) {
      line.set("concurrency", closed_loop_size(point));
    } else {
      line.set("rate", point);
    }
    set_engine(line);
    set_throughput(line, run, sums);
    set_latency(line, run, sums);
    set_steps(line, run);
    set_gain(line, run, sums);
    return line;
  }

  void set_engine(Json& line) const {
    const engine::EngineOptions& options = engine_.options();
    line.set("model", engine::model_name(engine_.model_folder()));
    line.set("backend", engine_.ops().name);
    line.set("isa", engine_.ops().isa);
    line.set("threads", num_threads_);
    line.set("context", engine_.context());
    line.set("blocks", engine_.num_blocks());
    line.set("max_num_seqs", options.max_num_seqs);
    line.set("max_num_batched_tokens", options.max_num_batched_tokens);
    line.set("chunk", options.chunk);
    line.set("max_step_ms", options.max_step_ms);
    line.set("async_scheduling", options.async_scheduling);
  }

  static void set_throughput(Json& line, const ServeRun& run, const RunSums& sums) {
    line.set("seconds", run.seconds);
    line.set("prompt_tokens", sums.prompt_tokens);
    line.set("output_tokens", sums.output_tokens);
    line.set("prompt_tokens_per_s", static_cast<double>(sums.prompt_tokens) / run.seconds);
    line.set("output_tokens_per_s", static_cast<double>(sums.output_tokens) / run.seconds);
    line.set("requests_per_s", static_cast<double>(sums.num_complete) / run.seconds);
  }

  void set_latency(Json& line, const ServeRun& run, const RunSums& sums) const {
    set_times(line, "ttft_ms", engine::distribution_of(sums.ttft), 1e3);
    set_times(line, "tpot_ms", engine::distribution_of(sums.tpot), 1e3);
    set_times(line, "gap_ms", engine::distribution_of(run.gaps), 1e3);
    set_times(line, "end_s", engine::distribution_of(sums.total), 1);
    line.set("ttft_target_ms", options_.target.ttft_ms);
    line.set("tpot_target_ms", options_.target.tpot_ms);
    const auto good = static_cast<double>(sums.num_good);
    line.set("goodput_per_s", good / run.seconds);
    line.set("goodput_share", good / static_cast<double>(run.requests.size()));
  }

  void set_steps(Json& line, const ServeRun& run) const {
    const engine::Stats& stats = run.stats;
    line.set("steps", run.steps);
    const auto budget = static_cast<double>(engine_.options().max_num_batched_tokens);
    line.set(
        "rows_per_step", stats.token_budget_use ? Json(*stats.token_budget_use * budget) : Json()
    );
    set_times(line, "step_ms", stats.step_seconds, 1e3);
    set_times(line, "plan_us", stats.plan_seconds, 1e6);
    set_times(line, "apply_us", stats.apply_seconds, 1e6);
    line.set("device_use", or_null(stats.device_use));
    line.set("preemptions", run.preemptions);
    line.set("window_seconds", stats.window_seconds);
  }

  void set_gain(Json& line, const ServeRun& run, const RunSums& sums) {
    if (!options_.closed_loop) {
      line.set("gain", Json());
      line.set("bytes_gain", Json());
      return;
    }
    const auto outputs = static_cast<double>(sums.output_tokens);
    const double rate = outputs / run.seconds;
    const auto rows = static_cast<double>(
        std::min(closed_loop_size(options_.points[num_lines_]), engine_.options().max_num_seqs)
    );
    const double tokens = static_cast<double>(sums.prompt_tokens + sums.output_tokens) /
                          static_cast<double>(run.requests.size());
    const StepBytes bytes = bytes_of(tokens);
    const double permitted = bytes.permitted_gain(rows, bytes.expected_experts(rows));
    if (num_lines_++ == 0) {
      first_rate_ = rate;
      first_permitted_ = permitted;
    }
    line.set("gain", rate / first_rate_);
    line.set("bytes_gain", permitted / first_permitted_);
  }

  StepBytes bytes_of(double tokens) const {
    const MoeConfig& moe = engine_.config().moe;
    const int64_t hidden = engine_.config().hidden_size;
    const auto packed = [&](int64_t rows, int64_t cols) {
      return ops::data_bytes(ops::WeightFormat::kFp4, rows, cols) +
             ops::scale_bytes(ops::WeightFormat::kFp4, rows, cols);
    };
    const int64_t expert =
        2 * packed(moe.moe_intermediate_size, hidden) + packed(hidden, moe.moe_intermediate_size);
    return step_bytes(
        engine_.config(),
        static_cast<double>(engine_.memory_plan().weights),
        static_cast<double>(expert),
        tokens
    );
  }

  engine::Engine& engine_;
  const ServeBenchOptions& options_;
  int num_threads_;
  TrafficModel model_;
  std::size_t num_lines_ = 0;
  double first_rate_ = 0;
  double first_permitted_ = 0;
};

}  // namespace

std::vector<Json> bench_serve(
    engine::Engine& engine, const ServeBenchOptions& options, const Emit& emit
) {
  if (options.traffic.num_requests < 1) {
    throw Error(ErrorCode::kInvalidArgument, "a benchmark of 0 requests; expected 1 or more");
  }
  ServeBench bench(engine, options);
  bench.warm_up();
  std::vector<Json> lines;
  for (std::size_t i = 0; i < options.points.size(); ++i) {
    lines.push_back(bench.run(i));
    emit(lines.back());
  }
  return lines;
}

}  // namespace di::bench
