// `deepinfer bench step`: its flags, and the model that it runs.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "bench/step_bench.h"
#include "bench/synthetic_model.h"
#include "cli/bench_commands.h"
#include "engine/loaded_model.h"

namespace di::cli {
namespace {

struct StepCommand {
  std::string backend = "cpu";
  std::string cuda_arithmetic = "fast";
  std::string model;
  int64_t layers = 0;
  int64_t experts = 0;
  int threads = 0;
  bench::StepBenchOptions bench;
};

void run_synthetic(StepCommand& command, const ops::OpTable& ops, ThreadPool& pool) {
  const bench::SyntheticModel synthetic = bench::synthetic_model(
      "v4.1-flash",
      ops,
      pool,
      {.num_layers = command.layers,
       .with_head = true,
       .with_drafts = !command.bench.drafts.empty(),
       .num_experts = command.experts}
  );
  command.bench.label = fmt::format("v4.1-flash, {} synthetic layers", command.layers);
  bench::bench_step(command.bench, synthetic.model, ops, pool, print_line);
}

void run_checkpoint(StepCommand& command, const ops::OpTable& ops, ThreadPool& pool) {
  const engine::LoadedModel loaded = engine::load(
      engine::open_checkpoint(engine::find_model(command.model), pool),
      ops,
      pool,
      {},
      {.drafts = !command.bench.drafts.empty()}
  );
  command.bench.label = std::filesystem::path(loaded.checkpoint->folder()).filename().string();
  bench::bench_step(command.bench, loaded.model, ops, pool, print_line);
}

void run(StepCommand& command) {
  const ops::OpTable& ops = engine::select_ops(command.backend, "auto", command.cuda_arithmetic);
  ThreadPool pool(command.threads);
  if (command.layers > 0) return run_synthetic(command, ops, pool);
  run_checkpoint(command, ops, pool);
}

}  // namespace

void add_step_bench(CLI::App& bench) {
  const auto options = std::make_shared<StepCommand>();
  CLI::App* command = bench.add_subcommand(
      "step", "Whole steps, draws included, of a model or of synthetic layers of the real width"
  );
  add_backend(*command, options->backend);
  add_cuda_arithmetic(*command, options->cuda_arithmetic);
  CLI::Option* model =
      command->add_option("-m,--model", options->model, "Model folder")->type_name("DIR");
  command
      ->add_option(
          "--layers",
          options->layers,
          "So many synthetic layers with embedding and head in place of a model (7.5 GB each)"
      )
      ->check(CLI::Range(1, 16))
      ->excludes(model);
  command
      ->add_option(
          "--experts", options->experts, "Routed experts of a synthetic layer at most; 0: all"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("-t,--threads", options->threads, "Threads; 0: one for each processor")
      ->capture_default_str();
  command->add_option("--sequences", options->bench.sequences, "Sequences that decode, by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--context", options->bench.context, "Tokens in each cache before decoding")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--rows", options->bench.chunk, "Rows of a prefill step at most")
      ->check(CLI::Range(int64_t{1}, int64_t{16384}))
      ->capture_default_str();
  command->add_option("--num-steps", options->bench.num_steps, "Decode steps to measure")
      ->check(CLI::Range(1, 8000))
      ->capture_default_str();
  command
      ->add_option(
          "--drafts",
          options->bench.drafts,
          "Also steps that verify so many drafts of each sequence and make new ones, by commas"
      )
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{64}))
      ->allow_extra_args(false);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
