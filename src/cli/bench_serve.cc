// `deepinfer bench throughput` and `deepinfer bench latency`.
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "bench/serve_bench.h"
#include "bench/serve_plot.h"
#include "cli/bench_commands.h"
#include "cli/engine_flags.h"
#include "cli/progress.h"

namespace di::cli {
namespace {

struct ServeFlags {
  EngineFlags engine;
  bench::ServeBenchOptions bench;
  std::vector<double> sweep;
  double point = 0;
  std::string plot;
};

void add_traffic_flags(CLI::App& command, ServeFlags& flags) {
  bench::TrafficOptions& traffic = flags.bench.traffic;
  command.add_option("--traffic", traffic.lengths, "How long prompts and outputs are")
      ->check(CLI::IsMember(bench::traffic_names()))
      ->capture_default_str();
  command.add_option("-n,--requests", traffic.num_requests, "Requests of each run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option(
          "--prompt-tokens",
          traffic.prompt_tokens,
          "Tokens of a prompt (fixed), or of the mean one; 0: the traffic's own"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option(
          "--output-tokens",
          traffic.output_tokens,
          "Tokens of an output (fixed), or of the mean one; 0: the traffic's own"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--traffic-seed", traffic.seed, "Seed of lengths, prompts and arrivals")
      ->capture_default_str();
  command
      .add_option(
          "--prompts",
          flags.bench.prompts,
          "Text file that prompts are cut from; without it they are random ids of the vocabulary"
      )
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
}

void add_result_flags(CLI::App& command, ServeFlags& flags) {
  bench::ServeTarget& target = flags.bench.target;
  command
      .add_option(
          "--ttft-target-ms",
          target.ttft_ms,
          "Goodput counts requests whose first token came so soon"
      )
      ->capture_default_str();
  command
      .add_option(
          "--tpot-target-ms", target.tpot_ms, "and whose further tokens took so long in the mean"
      )
      ->capture_default_str();
  command.add_option("--plot", flags.plot, "Draw latency against throughput over the sweep (SVG)")
      ->type_name("FILE");
  command
      .add_option(
          "--trace",
          flags.bench.trace,
          "Record steps from the middle of the last run into this file, for ui.perfetto.dev"
      )
      ->type_name("FILE");
  command.add_option("--trace-steps", flags.bench.trace_steps, "How many steps --trace records")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
}

void write_plot(const std::string& path, const std::vector<Json>& lines) {
  std::ofstream file(path, std::ios::binary);
  file << bench::serve_svg(lines);
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo, fmt::format("{}: the plot could not be written", path));
  }
}

void run(const ServeFlags& flags) {
  bench::ServeBenchOptions options = flags.bench;
  options.points = flags.sweep.empty() ? std::vector<double>{flags.point} : flags.sweep;
  std::unique_ptr<engine::Engine> engine;
  {
    ProgressBar bar("Loading");
    engine = engine::Engine::open(flags.engine.options(), [&](int64_t done, int64_t total) {
      bar.update(done, total);
    });
  }
  const std::vector<Json> lines = bench::bench_serve(*engine, options, print_line);
  if (!flags.plot.empty()) write_plot(flags.plot, lines);
}

std::shared_ptr<ServeFlags> add_command(
    CLI::App& bench, const std::string& name, const std::string& help
) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = bench.add_subcommand(name, help);
  add_traffic_flags(*command, *flags);
  add_result_flags(*command, *flags);
  flags->engine.add(*command, all_options());
  command->callback([flags] { run(*flags); });
  return flags;
}

}  // namespace

void add_serve_benches(CLI::App& bench) {
  const auto throughput = add_command(
      bench, "throughput", "An engine that always has so many requests under way (a closed loop)"
  );
  CLI::App& closed = *bench.get_subcommand("throughput");
  closed
      .add_option("--concurrency", throughput->point, "Requests under way at most; 0: all at once")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  closed.add_option("--sweep", throughput->sweep, "A run at each of these concurrencies")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber)
      ->allow_extra_args(false);

  const auto latency = add_command(
      bench, "latency", "An engine whose requests come at random, however busy it is (an open loop)"
  );
  latency->bench.closed_loop = false;
  latency->point = 1;
  CLI::App& open = *bench.get_subcommand("latency");
  open.add_option("--rate", latency->point, "Requests a second in the mean (Poisson)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  open.add_option("--sweep", latency->sweep, "A run at each of these rates")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->allow_extra_args(false);
}

}  // namespace di::cli
