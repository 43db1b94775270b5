#include "cli/engine_flags.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/option_table.h"

namespace di::cli {
namespace {

constexpr const char* kGroup = "Engine";

/// "DIR", "{cpu,ref}", "{on,off}", "INT", "FLOAT" or "TEXT".
std::string type_name(const engine::OptionInfo& option) {
  if (option.name == "model") return "DIR";
  if (option.name == "record") return "FILE";
  const std::vector<std::string>& choices = option.range.choices;
  if (!choices.empty()) return fmt::format("{{{}}}", fmt::join(choices, ","));
  const Json value = option.get({});
  if (value.is_bool()) return "{on,off}";
  if (value.is_integer()) return "INT";
  return value.is_number() ? "FLOAT" : "TEXT";
}

std::string flags_of(const engine::OptionInfo& option) {
  return option.letter == 0 ? option.flag() : fmt::format("-{},{}", option.letter, option.flag());
}

bool came_unseen(const engine::OptionOrigin& origin) {
  return origin.source == engine::OptionSource::kFile ||
         origin.source == engine::OptionSource::kEnvironment;
}

}  // namespace

const std::vector<std::string> kLoneOptions = {
    "model",
    "backend",
    "isa",
    "cuda_arithmetic",
    "threads",
    "context",
    "chunk",
    "replay",
    "replay_keep"};

const std::vector<std::string> kOneRequestOptions = [] {
  std::vector<std::string> names = kLoneOptions;
  names.insert(
      names.end(),
      {"async_scheduling",
       "drafts",
       "verification",
       "draft_costs",
       "seed",
       "peak_flops",
       "banned_tokens",
       "record",
       "record_content"}
  );
  return names;
}();

std::vector<std::string> all_options() {
  std::vector<std::string> names;
  for (const engine::OptionInfo& option : engine::option_table())
    names.push_back(option.name);
  return names;
}

void EngineFlags::add(CLI::App& command, const std::vector<std::string>& options) {
  for (const std::string& name : options) {
    const engine::OptionInfo& info = engine::find_option(name);
    CLI::Option* option = command.add_option(flags_of(info), texts_[name], info.help);
    option->type_name(type_name(info))->group(kGroup);
    const std::string value = info.text_of(info.get({}));
    if (!value.empty()) option->default_str(value);
    options_.emplace_back(name, option);
  }
  command
      .add_option(
          "--config", config_, "JSON object of engine options (docs/options.md); flags overrule it"
      )
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_flag(
          "--verbose",
          verbose_,
          "Tell every engine option, where its value is from, and the memory that is planned"
      )
      ->group(kGroup);
}

engine::MergedOptions EngineFlags::merge(const engine::EngineOptions& defaults) const {
  engine::OptionSources sources{
      .defaults = defaults, .config = config_, .environment = engine::read_environment()};
  for (const auto& [name, option] : options_) {
    if (option->count() > 0) sources.arguments.emplace_back(name, texts_.at(name));
  }
  engine::MergedOptions merged = engine::merge_options(sources);
  const bool unseen = std::any_of(merged.origins.begin(), merged.origins.end(), came_unseen);
  if (verbose_ || unseen) fmt::print(stderr, "{}\n", engine::options_line(merged, verbose_));
  for (const std::string& note : merged.notes)
    fmt::print(stderr, "deepinfer: {}\n", note);
  return merged;
}

}  // namespace di::cli
