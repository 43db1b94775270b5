#include "engine/option_sources.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/suggest.h"
#include "engine/option_table.h"

namespace di::engine {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

const char* name_of(OptionSource source) {
  switch (source) {
    case OptionSource::kDefault: return "default";
    case OptionSource::kFile: return "file";
    case OptionSource::kEnvironment: return "environment";
    case OptionSource::kCommandLine: return "command line";
  }
  return "unknown";
}

std::size_t index_of(const OptionInfo& option) {
  return static_cast<std::size_t>(&option - option_table().data());
}

/// Sets one option and notes where its value is from; complaints name that place.
void set(
    MergedOptions& merged, const OptionInfo& option, const Json& value, const OptionOrigin& origin
) {
  try {
    option.set(merged.options, value);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", origin.name, error.what()));
  }
  merged.origins[index_of(option)] = origin;
}

void merge_file(const std::string& path, MergedOptions& merged) {
  const Json config = Json::parse(
      read_text_file(path, kMaxConfigBytes), path, {.max_depth = 4, .reject_duplicate_keys = true}
  );
  if (!config.is_object()) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: expected an object from option names to values", path)
    );
  }
  for (const auto& [name, value] : config.as_object()) {
    const OptionInfo* option = nullptr;
    try {
      option = &find_option(name);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
    }
    set(merged, *option, value, {OptionSource::kFile, path});
  }
}

/// What a variable does: sets an option, or nothing for a reason.
struct VariableMeaning {
  const OptionInfo* option = nullptr;
  std::string reason = {};
};

VariableMeaning meaning_of(const std::string& variable) {
  std::vector<std::string> known;
  for (const OptionInfo& option : option_table()) {
    if (option.variable() == variable) return {&option};
    known.push_back(option.variable());
  }
  for (const OriginalVariable& original : original_variables()) {
    if (original.name == variable) {
      if (original.option.empty()) return {nullptr, original.reason};
      return {&find_option(original.option)};
    }
    known.push_back(original.name);
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "the environment sets {}, which means nothing here{}",
          variable,
          suggestion(variable, known)
      )
  );
}

void merge_environment(const Environment& environment, MergedOptions& merged) {
  for (const auto& [variable, text] : environment) {
    const VariableMeaning meaning = meaning_of(variable);
    if (meaning.option == nullptr) {
      merged.notes.push_back(fmt::format("{} has no effect: {}", variable, meaning.reason));
      continue;
    }
    const OptionOrigin& before = merged.origins[index_of(*meaning.option)];
    if (before.source == OptionSource::kEnvironment) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{} and {} set the same option; unset one", before.name, variable)
      );
    }
    set(merged, *meaning.option, meaning.option->parse(text), {OptionSource::kEnvironment, variable}
    );
  }
}

}  // namespace

MergedOptions merge_options(const OptionSources& sources) {
  MergedOptions merged;
  merged.options = sources.defaults;
  merged.origins.resize(option_table().size());
  if (!sources.config.empty()) merge_file(sources.config, merged);
  merge_environment(sources.environment, merged);
  for (const auto& [name, text] : sources.arguments) {
    const OptionInfo& option = find_option(name);
    set(merged, option, option.parse(text), {OptionSource::kCommandLine, option.flag()});
  }
  return merged;
}

std::string options_line(const MergedOptions& merged, bool all) {
  std::vector<std::string> parts;
  for (const OptionInfo& option : option_table()) {
    const OptionOrigin& origin = merged.origins[index_of(option)];
    if (!all && origin.source == OptionSource::kDefault) continue;
    const std::string value = option.text_of(option.get(merged.options));
    parts.push_back(fmt::format("{}={} ({})", option.name, value, origin.name));
  }
  return parts.empty() ? "" : fmt::format("options: {}", fmt::join(parts, ", "));
}

Json options_json(const MergedOptions& merged) {
  Json::Object object;
  for (const OptionInfo& option : option_table()) {
    const OptionOrigin& origin = merged.origins[index_of(option)];
    object.emplace_back(
        option.name,
        Json::Object{
            {"value", option.get(merged.options)},
            {"source", name_of(origin.source)},
            {"origin", origin.name}}
    );
  }
  return object;
}

}  // namespace di::engine
