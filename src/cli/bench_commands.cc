#include "cli/bench_commands.h"

#include <cstdio>

#include <fmt/format.h>

#include "engine/option_table.h"

namespace di::cli {

void add_backend(CLI::App& command, std::string& backend) {
  command.add_option("--backend", backend, "cpu, or cuda: one Hopper GPU")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

void add_cuda_arithmetic(CLI::App& command, std::string& arithmetic) {
  const engine::OptionInfo& info = engine::find_option("cuda_arithmetic");
  command.add_option(info.flag(), arithmetic, info.help)
      ->check(CLI::IsMember(info.range.choices))
      ->capture_default_str();
}

void print_line(const Json& result) {
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

}  // namespace di::cli
