// `deepinfer bench`: measurements as JSON lines.
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/memory_bench.h"
#include "bench/ops_bench.h"
#include "cli/commands.h"
#include "cli/runtime.h"

namespace di::cli {
namespace {

struct BenchOptions {
  std::string isa = "auto";
  int threads = 0;
  std::string only;
  std::vector<int64_t> rows;
};

void add_machine_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--isa", options.isa, "Kernels to measure")
      ->check(CLI::IsMember({"auto", "avx2", "avx512", "vnni", "amx"}))
      ->capture_default_str();
  command.add_option("-t,--threads", options.threads, "Threads; 0: one for each processor")
      ->capture_default_str();
}

Isa isa_of(const BenchOptions& options) {
  return options.isa == "auto" ? best_isa(detect_cpu()) : isa_from_name(options.isa);
}

void print_line(const Json& result) {
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure this machine and the kernels; prints JSON lines");
  bench->require_subcommand(1);

  auto options = std::make_shared<BenchOptions>();
  CLI::App* memory =
      bench->add_subcommand("memory", "Read bandwidth by threads, and the multiply-add peak");
  add_machine_options(*memory, *options);
  memory->callback([options] {
    bench::bench_memory({.isa = isa_of(*options), .max_threads = options->threads}, print_line);
  });

  CLI::App* ops = bench->add_subcommand("ops", "Every op at the real model's sizes");
  add_machine_options(*ops, *options);
  ops->add_option("--only", options->only, "One benchmark by name");
  ops->add_option("--rows", options->rows, "Row counts, separated by commas")->delimiter(',');
  ops->callback([options] {
    bench::OpsBenchOptions request{
        .isa = isa_of(*options), .threads = options->threads, .only = options->only};
    if (!options->rows.empty()) request.rows = options->rows;
    bench::bench_ops(request, print_line);
  });
}

}  // namespace di::cli
