// From a row of logits to a token: one sequence's sampler.
//
// Everything here is a pure function of the logits, the parameters, the tokens before and the
// position, in double and whole numbers and in a fixed order; so a text never depends on what
// shares the batch, on threads or on the instruction set. docs/sampling.md has the pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sampling/distribution.h"
#include "sampling/logit_edits.h"
#include "sampling/params.h"

namespace di::sampling {

/// A token beside the one that was drawn.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;

  bool operator==(const TokenLogprob&) const = default;
};

/// One draw.
struct Draw {
  int32_t token = -1;
  float logprob = 0;  ///< ln of its probability, −9999 at least, of the model's own distribution or
                      ///< the processed one; 0 unless logprobs or top_logprobs asks for it
  std::vector<TokenLogprob> top = {};  ///< the best tokens of that distribution, best first
  bool finite = true;  ///< false: the row held a NaN or +∞, or nothing can be drawn; token is −1

  bool operator==(const Draw&) const = default;
};

/// A row of logits as a sampler sees it. What it points to outlives it.
struct SampledRow {
  std::span<const float> logits;            ///< [vocab_size]
  Peak peak;                                ///< of the logits
  std::span<const double> edited;           ///< [vocab_size]; empty when nobody needs them
  Distribution law;                         ///< what the token is drawn from
  std::optional<Distribution> beside = {};  ///< what it would be drawn from if it were not forced,
                                            ///< when that is to be reported
};

/// Draws one sequence's tokens and keeps what penalties and limits count.
///
/// Thread: one at a time. Cheap to build; costs memory for the ids of the sequence only when a
/// penalty is set. Copies go on by themselves.
class Sampler {
 public:
  /// `prompt`: counted by the repetition penalty. `outputs`: tokens that this choice already has
  /// (after preemption); the sampler continues behind them as if it had drawn them itself.
  /// `params` is validated; `eos` is the model's end token and `seed` the choice's own.
  Sampler(
      std::shared_ptr<const SamplingParams> params,
      int32_t eos,
      uint64_t seed,
      std::span<const int32_t> prompt,
      std::span<const int32_t> outputs
  );

  /// The same with a copy of `params`.
  Sampler(
      const SamplingParams& params,
      int32_t eos,
      uint64_t seed,
      std::span<const int32_t> prompt,
      std::span<const int32_t> outputs
  )
      : Sampler(std::make_shared<const SamplingParams>(params), eos, seed, prompt, outputs) {}

  /// Draws the token that follows position `position`, and counts it. A draw that is not finite
  /// counts nothing; the sequence is to be ended.
  /// `scratch` is the caller's, so that rows can be drawn in parallel; it is overwritten and grows
  /// to [vocab_size] when a draw needs it.
  Draw draw(std::span<const float> logits, int64_t position, std::vector<double>& scratch);

  /// What the next token is drawn from; draw() is this, token_at() of the law, and tell(). When the
  /// law is not drawable() the draw is not finite. `storage` is the caller's and outlives the
  /// result.
  SampledRow row(std::span<const float> logits, std::vector<double>& storage) const;

  /// The forced token, else the best one after every edit; −1 when nothing can be drawn. It costs
  /// no more than looking for it. `storage` is overwritten.
  int32_t best_token(std::span<const float> logits, std::vector<double>& storage) const;

  /// Tells that `token` of `row` is the next one: counts it, and reports what is asked for.
  Draw tell(SampledRow& row, int32_t token);

  /// Counts a token that may come, for the rows behind it, until take_back(), newest first.
  void count(int32_t token) { edits_.count_output(token); }
  void take_back(int32_t token) { edits_.take_back(token); }

  uint64_t seed() const { return seed_; }

  /// Tokens drawn so far, those of `outputs` included.
  int64_t num_outputs() const { return edits_.num_outputs(); }

  /// True when `token` ends the choice by itself: EOS unless ignored, or a stop token.
  bool is_end(int32_t token) const;

 private:
  int32_t forced_token() const;
  bool wants_logprobs() const;

  std::shared_ptr<const SamplingParams> params_;
  int32_t eos_;
  uint64_t seed_;
  LogitEdits edits_;
};

/// Lets a sampler count tokens that may come, and takes them back in the end.
class CountedAhead {
 public:
  explicit CountedAhead(Sampler& sampler) : sampler_(sampler) {}
  ~CountedAhead() {
    for (auto token = tokens_.rbegin(); token != tokens_.rend(); ++token)
      sampler_.take_back(*token);
  }
  CountedAhead(const CountedAhead&) = delete;
  CountedAhead& operator=(const CountedAhead&) = delete;

  void count(int32_t token) {
    sampler_.count(token);
    tokens_.push_back(token);
  }

 private:
  Sampler& sampler_;
  std::vector<int32_t> tokens_;
};

/// ln of the probability that the model itself gives `token`, in double. The row has no NaN, no +∞
/// and something above −∞.
double log_probability(std::span<const float> logits, int32_t token);

/// What a draw of `token` would report: its logprob and the `top` best tokens, of the model's own
/// distribution. Prompt logprobs are made of these. finite is false as it is in a draw.
Draw score(std::span<const float> logits, int32_t token, int64_t top);

}  // namespace di::sampling
