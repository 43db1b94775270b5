// Tensor names come with or without a leading "model."; inside the program they have none.
#pragma once

#include <string_view>

namespace di::checkpoint {

/// The name without a leading "model.".
inline std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace di::checkpoint
