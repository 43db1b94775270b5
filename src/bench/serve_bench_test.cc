// A small run of the serving benchmark on the default model gives every field, and adds up.
#include "bench/serve_bench.h"

#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/serve_plot.h"

namespace di::bench {
namespace {

std::unique_ptr<engine::Engine> open_small() {
  engine::EngineOptions options;
  options.model = DI_SEEDLING;
  options.context = 256;
  options.max_num_seqs = 8;
  options.threads = 1;
  return engine::Engine::open(options);
}

TrafficOptions small_traffic() {
  return {.lengths = "fixed", .num_requests = 6, .prompt_tokens = 12, .output_tokens = 4};
}

TEST(ServeBench, OfAClosedLoopGivesEveryFieldForEveryConcurrency) {
  const auto engine = open_small();
  const ServeBenchOptions options{.points = {1, 4, 0}, .traffic = small_traffic()};
  std::vector<Json> emitted;
  const std::vector<Json> lines =
      bench_serve(*engine, options, [&](const Json& line) { emitted.push_back(line); });
  EXPECT_EQ(lines, emitted);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2].at("concurrency").as_integer(), 6);
  for (const Json& line : lines) {
    EXPECT_EQ(line.at("name").as_string(), "throughput");
    EXPECT_EQ(line.at("failed").as_integer(), 0);
    EXPECT_EQ(line.at("prompt_tokens").as_integer(), 6 * 12);
    EXPECT_EQ(line.at("output_tokens").as_integer(), 6 * 4);
    for (const char* key :
         {"ttft_ms_p50",
          "ttft_ms_p99",
          "tpot_ms_p90",
          "gap_ms_max",
          "end_s_p50",
          "seconds",
          "output_tokens_per_s",
          "requests_per_s",
          "rows_per_step",
          "step_ms_p50",
          "plan_us_p50",
          "apply_us_p99",
          "device_use",
          "bytes_gain",
          "gain"})
      EXPECT_GT(line.at(key).as_number(), 0) << key;
    EXPECT_LE(line.at("ttft_ms_p50").as_number(), line.at("ttft_ms_max").as_number());
    EXPECT_EQ(line.at("model").as_string(), "seedling");
  }
  EXPECT_EQ(lines[0].at("gain").as_number(), 1);
  EXPECT_EQ(lines[0].at("bytes_gain").as_number(), 1);
  EXPECT_GT(lines[1].at("bytes_gain").as_number(), 1);
  EXPECT_GT(lines[0].at("steps").as_integer(), lines[2].at("steps").as_integer());
}

TEST(ServeBench, OfAnOpenLoopCountsFromTheArrivals) {
  const auto engine = open_small();
  const std::vector<TrafficRequest> traffic = make_traffic(
      {.lengths = "fixed", .num_requests = 5, .prompt_tokens = 8, .output_tokens = 3, .rate = 1000},
      {.vocab_size = 100, .context = 64}
  );
  const ServeRun run = serve(*engine, traffic, {.id = "open"});
  for (std::size_t i = 0; i < traffic.size(); ++i) {
    EXPECT_EQ(run.requests[i].arrival, traffic[i].arrival_seconds);
    EXPECT_TRUE(run.requests[i].complete);
    EXPECT_GT(run.requests[i].ttft(), 0);
    EXPECT_GE(run.requests[i].total(), run.requests[i].ttft());
  }
  EXPECT_EQ(run.gaps.size(), 5u * 2);
}

TEST(ServeBench, MeasuresGoodputByItsTargets) {
  const auto engine = open_small();
  ServeBenchOptions options{.closed_loop = false, .points = {1000}, .traffic = small_traffic()};
  options.target = {.ttft_ms = 1e6, .tpot_ms = 1e6};
  const auto ignore = [](const Json&) {};
  EXPECT_EQ(bench_serve(*engine, options, ignore)[0].at("goodput_share").as_number(), 1);
  const auto other = open_small();
  options.target = {.ttft_ms = 1e-6, .tpot_ms = 1e6};
  const Json strict = bench_serve(*other, options, ignore)[0];
  EXPECT_EQ(strict.at("goodput_share").as_number(), 0);
  EXPECT_EQ(strict.at("name").as_string(), "latency");
  EXPECT_EQ(strict.at("rate").as_number(), 1000);
  EXPECT_TRUE(strict.at("gain").is_null());
}

TEST(ServeBench, TracesStepsAndDrawsItsLines) {
  const auto path = std::filesystem::temp_directory_path() / "serve_bench_trace.json";
  std::vector<Json> lines;
  {
    const auto engine = open_small();
    const ServeBenchOptions options{
        .points = {1, 2}, .traffic = small_traffic(), .trace = path.string(), .trace_steps = 4};
    lines = bench_serve(*engine, options, [](const Json&) {});
  }
  const Json trace = Json::parse(read_text_file(path.string()), "trace");
  EXPECT_EQ(trace.at("otherData").at("num_steps").as_integer(), 4);
  std::filesystem::remove(path);
  const std::string svg = serve_svg(lines);
  EXPECT_NE(svg.find(">2</text>"), std::string::npos);
  EXPECT_NE(svg.find("Time to the first token"), std::string::npos);
}

TEST(ServeBench, RefusesToMeasureNothing) {
  const auto engine = open_small();
  ServeBenchOptions options{.points = {1}, .traffic = small_traffic()};
  options.traffic.num_requests = 0;
  EXPECT_THROW(bench_serve(*engine, options, [](const Json&) {}), Error);
}

}  // namespace
}  // namespace di::bench
