// The rotary frequencies of both kinds of layers. Source: model specification section 3.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace di::model {

/// Frequencies of layers without compression: 1 / θ^(2i / rope_dim), each step rounded to fp32.
std::vector<float> base_frequencies(double theta, int64_t rope_dim);

/// Frequencies of compressed layers: the base ones, blended with their `factor`-th part as YaRN
/// does (frequencies only; no attention temperature).
std::vector<float> yarn_frequencies(double theta, int64_t rope_dim, const RopeScaling& scaling);

}  // namespace di::model
