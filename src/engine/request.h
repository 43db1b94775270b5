// What goes into an engine and what comes out: plain values, owned by whoever holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "sampling/params.h"
#include "sampling/sampler.h"

namespace di::engine {

/// One prompt and what is wanted of it.
struct Request {
  std::string id = {};  ///< not empty, and not that of a request which still runs
  std::vector<int32_t> prompt_token_ids = {};
  sampling::SamplingParams sampling = {};
  std::string user = {};       ///< users share the engine fairly; empty is a user, too
  int priority = 0;            ///< −100 … 100, higher goes first, always
  double timeout_seconds = 0;  ///< from arrival to the last token; 0: none
  bool detokenize = true;      ///< outputs carry text; stop strings need it and turn it on
};

/// Why a request was not taken. It costs nothing else.
struct Refusal {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message = {};
};

/// What ended a choice.
enum class FinishReason {
  kEos,         ///< the model's end token
  kStopToken,   ///< one of stop_token_ids
  kStopString,  ///< one of the stop strings
  kLength,      ///< max_tokens
  kContext,     ///< prompt and output fill the engine's context
  kAborted,     ///< abort() or close()
  kTimeout,     ///< timeout_seconds
  kFailed,      ///< the message says what
  kRefused,     ///< never taken; only a front with a queue says so this way
};

/// "eos", "stop_token", "stop_string", "length", "context", "abort", "timeout", "failed",
/// "refused".
const char* name_of(FinishReason reason);

/// One token of a choice.
struct TokenOutput {
  int32_t token = 0;
  float logprob = 0;                             ///< when logprobs are asked for
  std::vector<sampling::TokenLogprob> top = {};  ///< when top_logprobs are
};

/// News of one choice.
struct ChoiceOutput {
  int64_t index = 0;
  std::vector<TokenOutput> tokens = {};  ///< new ones; the token that ends the choice is among them
  std::string text = {};  ///< new text: whole characters, and nothing that may become a stop string
  std::optional<FinishReason> finish_reason = {};  ///< set once, on the choice's last output
  std::string message = {};       ///< of a failure, or the stop string that was met
  int64_t num_output_tokens = 0;  ///< so far
};

/// News of one request. The last one says `finished`, and every taken request has exactly one such.
struct Output {
  std::string request_id = {};
  int64_t step = -1;  ///< the step that made the tokens; −1: no step did
  int64_t num_prompt_tokens = 0;
  std::vector<ChoiceOutput> choices = {};         ///< only those with news
  std::vector<TokenOutput> prompt_logprobs = {};  ///< of the next prompt tokens, from the second on
  bool finished = false;
};

}  // namespace di::engine
