// Configurations of released models, built in so that memory plans, benchmarks and tests need no
// checkpoint.
#pragma once

#include <string_view>

#include "config/model_config.h"

namespace di {

/// DeepSeek-V4.1-Flash: the values of its config.json.
std::string_view v41_flash_config_text();

/// The same, parsed.
ModelConfig v41_flash_config();

}  // namespace di
