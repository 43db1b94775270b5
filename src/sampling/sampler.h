// From logits to a token.
#pragma once

#include <cstdint>
#include <span>

namespace di::sampling {

/// How a sequence's tokens are drawn.
struct SamplingParams {
  double temperature = 1;  ///< divides the logits; 0: the best token always, ties to the lower id
  double top_p = 1;        ///< (0, 1]: keep the fewest best tokens whose probabilities reach this
  int64_t top_k = 0;       ///< keep this many best tokens; 0: all
  uint64_t seed = 0;       ///< of the sequence's random numbers
};

/// Throws Error{kInvalidArgument} naming the parameter that is out of its range.
void validate(const SamplingParams& params);

/// The token that follows position `position`. The draw depends on logits, params and position
/// only. Probabilities are computed in double; among equal logits the lower id ranks first.
/// Errors: Error{kInvalidArgument} when a logit is not a number or no logit is finite.
int32_t sample(std::span<const float> logits, const SamplingParams& params, int64_t position);

/// ln of the probability of `token` under the plain softmax of `logits`, in double.
double log_probability(std::span<const float> logits, int32_t token);

}  // namespace di::sampling
