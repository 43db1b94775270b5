#include "options.h"

#include "base/error.h"
#include "engine/environment.h"
#include "engine/option_sources.h"
#include "engine/option_table.h"

namespace di::python {
namespace {

void set_all(engine::EngineOptions& options, const Json& values) {
  for (const auto& [name, value] : values.as_object())
    engine::find_option(name).set(options, value);
}

}  // namespace

ResolvedOptions resolve_options(const Json& defaults, const Json& values) {
  engine::OptionSources sources{.environment = engine::read_environment()};
  set_all(sources.defaults, defaults);
  engine::MergedOptions merged = engine::merge_options(sources);
  set_all(merged.options, values);
  if (merged.options.model.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        "no model: give its folder, or set DEEPINFER_MODEL; the package brings none"
    );
  }
  return {std::move(merged.options), std::move(merged.notes)};
}

Json options_json(const engine::EngineOptions& options) {
  Json json = Json::Object{};
  for (const engine::OptionInfo& option : engine::option_table())
    json.set(option.name, option.get(options));
  return json;
}

}  // namespace di::python
