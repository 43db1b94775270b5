// `deepinfer bench drafts`: its flags.
#include <memory>

#include "bench/drafts_bench.h"
#include "cli/bench_commands.h"
#include "cli/engine_flags.h"

namespace di::cli {
namespace {

struct DraftsCommand {
  bench::DraftsBenchOptions bench;
  EngineFlags engine;
};

}  // namespace

void add_drafts_bench(CLI::App& bench) {
  const auto options = std::make_shared<DraftsCommand>();
  CLI::App* command = bench.add_subcommand(
      "drafts", "What drafts gain on chat, lists, code and JSON, beside what costs let expect"
  );
  command->add_option("--modes", options->bench.modes, "Values of drafts, by commas; off first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--sequences", options->bench.sequences, "Sequences at once, by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--max-tokens", options->bench.max_tokens, "Tokens of an answer at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--rounds", options->bench.rounds, "Turns of each mode to measure")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--temperature", options->bench.temperature, "Of the answers")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  std::vector<std::string> names = all_options();
  std::erase(names, "drafts");
  options->engine.add(*command, names);
  command->callback([options] {
    options->bench.engine = options->engine.options();
    bench::bench_drafts(options->bench, print_line);
  });
}

}  // namespace di::cli
