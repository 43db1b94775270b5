// The rules between keys of config.json. The legal range of each key alone stands in
// model_config.cc.
#pragma once

#include <string_view>

#include "config/model_config.h"

namespace di {

/// Throws Error{kInvalidFile} for the first pair of keys that contradict each other; the message
/// starts with `where` and holds the keys, their values and the rule.
void check_model_rules(const ModelConfig& config, std::string_view where);

}  // namespace di
