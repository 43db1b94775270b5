// `deepinfer bench draft-choices`: its flags.
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
#include "bench/draft_choices_bench.h"
#include "cli/bench_commands.h"
#include "engine/loaded_model.h"

namespace di::cli {
namespace {

struct DraftChoicesCommand {
  std::string backend = "cpu";
  int threads = 0;
  bench::DraftChoicesOptions bench;
};

void run(const DraftChoicesCommand& command) {
  if (command.bench.few_layers >= command.bench.many_layers)
    throw Error(ErrorCode::kInvalidArgument, "--few-layers must be below --many-layers");
  ThreadPool pool(command.threads);
  bench::bench_draft_choices(
      command.bench, engine::select_ops(command.backend, "auto"), pool, print_line
  );
}

void add_measuring(CLI::App& command, const std::shared_ptr<DraftChoicesCommand>& options) {
  add_backend(command, options->backend);
  command.add_option("-t,--threads", options->threads, "Threads; 0: one for each processor")
      ->capture_default_str();
  command
      .add_option("--few-layers", options->bench.few_layers, "Synthetic layers of the short model")
      ->check(CLI::Range(3, 16))
      ->capture_default_str();
  command
      .add_option(
          "--many-layers",
          options->bench.many_layers,
          "And of the long one (7.5 GB each, and 11 GB)"
      )
      ->check(CLI::Range(3, 16))
      ->capture_default_str();
  command.add_option("--experts", options->bench.num_experts, "Routed experts of a layer; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--context", options->bench.context, "Tokens in each cache before decoding")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command.add_option("--num-steps", options->bench.num_steps, "Steps of each kind to measure")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

}  // namespace

void add_draft_choices_bench(CLI::App& bench) {
  const auto options = std::make_shared<DraftChoicesCommand>();
  CLI::App* command = bench.add_subcommand(
      "draft-choices", "What choosing how many drafts to verify gains, by costs measured here"
  );
  add_measuring(*command, options);
  command->add_option("--sequences", options->bench.sequences, "Sequences at once, by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--means", options->bench.means, "Mean confidences, by commas")
      ->delimiter(',')
      ->check(CLI::Range(0.01, 0.99))
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--concentration", options->bench.concentration, "Of their Beta laws: a + b")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--random-steps", options->bench.random_steps, "Steps to evaluate")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seed", options->bench.seed, "Of the confidences")->capture_default_str();
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
