// `deepinfer options`: what flags, environment and config file add up to.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "engine/option_table.h"

namespace di::cli {
namespace {

struct OptionsOptions {
  EngineFlags engine;
  bool json = false;
};

void print_table(const engine::MergedOptions& merged) {
  const std::vector<engine::OptionInfo>& table = engine::option_table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const engine::OptionInfo& option = table[i];
    const std::string value = option.text_of(option.get(merged.options));
    fmt::print(
        "{:<24} {:<12} {:<28} {}{}{}\n",
        option.name,
        value.empty() ? "-" : value,
        merged.origins[i].name,
        option.range_text(),
        option.unit.empty() ? "" : ", ",
        option.unit
    );
  }
}

void run(const OptionsOptions& options) {
  const engine::MergedOptions merged = options.engine.merge();
  engine::validate(merged.options);
  if (options.json) {
    fmt::print("{}\n", engine::options_json(merged).dump());
  } else {
    print_table(merged);
  }
}

}  // namespace

void add_options(CLI::App& app) {
  auto options = std::make_shared<OptionsOptions>();
  CLI::App* command = app.add_subcommand(
      "options", "Show every engine option, its value and where that comes from"
  );
  options->engine.add(*command, all_options());
  command->add_flag("--json", options->json, "Print a JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
