// SamplingParams: everything a request may ask of its tokens, as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace di::sampling {

// Limits of what one request may ask for; validate() holds them.
constexpr int64_t kMaxTokens = 2'147'483'647;  ///< of max_tokens, top_k, first_n_token_no_eos
constexpr int64_t kMaxChoices = 128;
constexpr int64_t kMaxTopLogprobs = 1000;
constexpr int64_t kMaxLogitBias = 1024;
constexpr int64_t kMaxStopTokenIds = 1024;
constexpr int64_t kMaxStopStrings = 64;
constexpr int64_t kMaxStopStringBytes = 4096;  ///< of one stop string
constexpr int64_t kMaxGoldenTokenIds = 1 << 20;

/// What a token's logit is moved by before it is drawn.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;  ///< added to the logit

  bool operator==(const LogitBias&) const = default;
};

/// How a request's tokens are drawn, what ends it, and what is told beside each token. The order in
/// which the fields act is in docs/sampling.md.
struct SamplingParams {
  // Distribution.
  double temperature = 1;         ///< divides the logits; 0: the best token, ties to the lower id
  double top_p = 1;               ///< (0, 1]: keep the fewest best tokens that reach this mass
  int64_t top_k = 0;              ///< keep this many best tokens; 0 or −1: all
  double min_p = 0;               ///< [0, 1]: drop tokens below this share of the best one's mass
  double repetition_penalty = 1;  ///< > 0: divides positive, multiplies negative logits of seen ids
  double presence_penalty = 0;    ///< [−2, 2]: taken from the logit of each id in the output
  double frequency_penalty = 0;   ///< [−2, 2]: taken once for each time the id is in the output
  std::vector<LogitBias> logit_bias = {};
  std::vector<int32_t> allowed_token_ids = {};  ///< when not empty, nothing else can be drawn
  std::vector<int32_t> banned_token_ids = {};   ///< can not be drawn
  std::optional<uint64_t> seed = {};  ///< of the random numbers; unset: the engine picks one

  // End.
  int64_t max_tokens = 16;           ///< at least 1
  int64_t min_tokens = 0;            ///< no end token is drawn, no stop string counts, before this
  int64_t first_n_token_no_eos = 0;  ///< the EOS token is not drawn among the first n
  bool ignore_eos = false;           ///< the EOS token is a token like any other
  std::vector<int32_t> stop_token_ids = {};  ///< each ends the choice, as EOS does
  std::vector<std::string> stop = {};        ///< text that ends the choice and is not part of it

  // Choices and reports.
  int64_t n = 1;                    ///< independent choices for the same prompt
  bool logprobs = false;            ///< report the logprob of each token
  int64_t top_logprobs = 0;         ///< report this many best tokens beside it, 0…1000
  bool prompt_logprobs = false;     ///< report the logprob of each prompt token but the first
  bool processed_logprobs = false;  ///< logprobs of the distribution that was drawn from (after
                                    ///< every field above) instead of the model's own

  /// Teacher forcing: output token i is golden_token_ids[i] where that is not −1.
  std::vector<int32_t> golden_token_ids = {};

  bool operator==(const SamplingParams&) const = default;
};

/// Throws Error{kInvalidArgument} naming the field, its value and its range. `vocab_size` bounds
/// every token id.
void validate(const SamplingParams& params, int64_t vocab_size);

/// True when `token` ends a choice by itself: `eos` unless ignored, or a stop token.
bool ends_choice(const SamplingParams& params, int32_t eos, int32_t token);

/// The seed of choice `choice` of a request whose seed is `seed`: choice 0 keeps it, so that a lone
/// choice draws what its seed says.
uint64_t choice_seed(uint64_t seed, int64_t choice);

/// The seed of request `request` that brings none, from the engine's own seed; so equal prompts
/// get different texts, and the same requests in the same order the same ones.
uint64_t request_seed(uint64_t engine_seed, int64_t request);

}  // namespace di::sampling
