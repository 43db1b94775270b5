#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

int32_t best_token(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void check_logits(std::span<const float> logits) {
  const bool any_nan =
      std::any_of(logits.begin(), logits.end(), [](float l) { return std::isnan(l); });
  if (any_nan || !std::isfinite(logits[static_cast<std::size_t>(best_token(logits))])) {
    throw Error(
        ErrorCode::kInvalidArgument, "the model's logits are not finite; the sequence cannot go on"
    );
  }
}

/// Token ids from the best down, at most `top_k` of them when it is positive.
std::vector<int32_t> ranked_tokens(std::span<const float> logits, int64_t top_k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<std::size_t>(a)];
    const float lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  if (top_k > 0 && top_k < std::ssize(order)) {
    std::nth_element(order.begin(), order.begin() + top_k, order.end(), better);
    order.resize(static_cast<std::size_t>(top_k));
  }
  std::sort(order.begin(), order.end(), better);
  return order;
}

}  // namespace

void validate(const SamplingParams& params) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); };
  if (!(params.temperature >= 0) || !std::isfinite(params.temperature)) {
    refuse(fmt::format("temperature is {}, it must be 0 or more", params.temperature));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    refuse(fmt::format("top_p is {}, it must be above 0 and at most 1", params.top_p));
  }
  if (params.top_k < 0)
    refuse(fmt::format("top_k is {}, it must be 0 (all) or more", params.top_k));
}

int32_t sample(std::span<const float> logits, const SamplingParams& params, int64_t position) {
  check_logits(logits);
  if (params.temperature == 0) return best_token(logits);
  const std::vector<int32_t> tokens = ranked_tokens(logits, params.top_k);
  const double top = logits[static_cast<std::size_t>(tokens[0])];
  std::vector<double> mass;  // running sums of unnormalised probabilities
  double total = 0;
  for (const int32_t token : tokens) {
    total += std::exp((logits[static_cast<std::size_t>(token)] - top) / params.temperature);
    mass.push_back(total);
  }
  const auto nucleus = std::lower_bound(mass.begin(), mass.end(), params.top_p * total);
  const double kept = nucleus == mass.end() ? total : *nucleus;
  const double draw = uniform(params.seed, position, Stream::kTarget) * kept;
  const auto chosen = std::upper_bound(mass.begin(), mass.end(), draw);
  return tokens[static_cast<std::size_t>(std::min(chosen - mass.begin(), std::ssize(tokens) - 1))];
}

double log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits)
    total += std::exp(logit - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(total);
}

}  // namespace di::sampling
