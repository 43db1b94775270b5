// From a row of logits to a token: one sequence's sampler.
//
// Everything here is a pure function of the logits, the parameters, the tokens before and the
// position, computed in a fixed order in double; so a text never depends on what shares the batch.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/params.h"

namespace di::sampling {

/// A token beside the one that was drawn.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

/// One draw.
struct Draw {
  int32_t token = -1;
  float logprob = 0;  ///< ln of its probability, of the model or as processed; 0 unless asked for
  std::vector<TokenLogprob> top;  ///< the best tokens of that distribution, best first
  bool finite = true;  ///< false: the row held a NaN or +∞, or nothing can be drawn; token is −1
};

/// Draws one sequence's tokens and keeps what penalties and limits count.
///
/// Thread: one at a time. Cheap to build; costs memory for the ids of the sequence only when a
/// penalty is set.
class Sampler {
 public:
  /// `prompt`: counted by the repetition penalty. `outputs`: tokens that this choice already has
  /// (after preemption); the sampler continues behind them as if it had drawn them itself.
  /// `params` is validated and has a seed; `eos` is the model's end token.
  Sampler(
      const SamplingParams& params,
      int32_t eos,
      uint64_t seed,
      std::span<const int32_t> prompt,
      std::span<const int32_t> outputs
  );

  /// Draws the token that follows position `position`, and counts it.
  /// `scratch` is overwritten: [vocab_size], the caller's, so that rows can be drawn in parallel.
  Draw draw(std::span<const float> logits, int64_t position, std::vector<double>& scratch);

  /// Tokens drawn so far, those of `outputs` included.
  int64_t num_outputs() const { return num_outputs_; }

  /// True when `token` ends the choice by itself: EOS unless ignored, or a stop token.
  bool is_end(int32_t token) const;

 private:
  void count(int32_t token);
  void process(std::vector<double>& logits) const;
  int32_t choose(const std::vector<double>& logits, int64_t position) const;

  SamplingParams params_;
  int32_t eos_;
  uint64_t seed_;
  int64_t num_outputs_ = 0;
  std::unordered_map<int32_t, int64_t> counts_;  ///< times in the output, of tokens with a penalty
};

/// The model's own logprob of `token`, in double. The row must hold no NaN and no +∞.
double log_probability(std::span<const float> logits, int32_t token);

/// The model's own logprob of a given token and its `top` best tokens, as a draw that had to give
/// `token`: what prompt logprobs are made of. A row with a NaN or +∞ gives finite = false.
Draw score(std::span<const float> logits, int32_t token, int64_t top);

}  // namespace di::sampling
