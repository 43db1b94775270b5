#include "model/rope_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace di::model {
namespace {

/// The (fractional) pair index that makes `turns` full turns over the original context.
double pair_of_turns(double turns, double theta, int64_t rope_dim, int64_t context) {
  return static_cast<double>(rope_dim) *
         std::log(static_cast<double>(context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

}  // namespace

std::vector<float> base_frequencies(double theta, int64_t rope_dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rope_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    const auto power = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))
    );
    frequencies.push_back(1.0f / power);
  }
  return frequencies;
}

std::vector<float> yarn_frequencies(double theta, int64_t rope_dim, const RopeScaling& scaling) {
  const int64_t context = scaling.original_max_position_embeddings;
  const double low =
      std::max(std::floor(pair_of_turns(scaling.beta_fast, theta, rope_dim, context)), 0.0);
  const double high = std::min(
      std::ceil(pair_of_turns(scaling.beta_slow, theta, rope_dim, context)),
      static_cast<double>(rope_dim - 1)
  );
  const auto span = static_cast<float>(std::max(high - low, 1e-3));
  std::vector<float> frequencies = base_frequencies(theta, rope_dim);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / span, 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float stretched = frequencies[i] / static_cast<float>(scaling.factor);
    frequencies[i] = stretched * (1.0f - keep) + frequencies[i] * keep;
  }
  return frequencies;
}

}  // namespace di::model
