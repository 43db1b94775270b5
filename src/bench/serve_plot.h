// A sweep of the serving benchmark as a picture.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace di::bench {

/// The lines of one sweep as a picture: time to the first token, and time a token, against output
/// tokens/s. A document of svg_plot.h.
std::string serve_svg(const std::vector<Json>& lines);

}  // namespace di::bench
