// Requests for benchmarks of a whole engine: how long they are, what they say, when they come. A
// function of the options alone: the same seed gives the same traffic on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace di::bench {

/// One request.
struct TrafficRequest {
  double arrival_seconds = 0;  ///< since the first moment of the run
  std::vector<int32_t> prompt;
  int64_t output_tokens = 1;  ///< its answer has exactly so many
};

/// How long prompts and outputs are, log-normal: exp of a normal number of the spread `sigma`.
struct LengthLaw {
  double mean = 0;
  double sigma = 0;
};

/// Chats as people have them with an assistant: most are short, a few are very long. The means are
/// those that were published for the ShareGPT conversations (prompts of 161 tokens, answers of
/// 338); no data set is needed.
inline constexpr LengthLaw kChatPrompts{161, 1.2};
inline constexpr LengthLaw kChatOutputs{338, 0.9};

struct TrafficOptions {
  std::string lengths = "chat";  ///< a name of traffic_names()
  int64_t num_requests = 64;
  int64_t prompt_tokens =
      0;  ///< of a prompt: all of them (fixed) or the mean; 0: the traffic's own
  int64_t output_tokens = 0;  ///< likewise, of an output
  double rate = 0;            ///< arrivals a second, at random (Poisson); 0: all come at once
  uint64_t seed = 1;
};

/// What prompts are made of, and what bounds them.
struct TrafficModel {
  int64_t vocab_size = 0;
  int64_t context = 0;  ///< tokens of prompt and output together at most
  std::vector<int32_t> text =
      {};  ///< prompts are pieces of it; empty: random ids of the vocabulary
};

/// "fixed", "chat", "long-among-short".
const std::vector<std::string>& traffic_names();

/// The requests, in the order of arrival.
///
/// - fixed: every prompt of prompt_tokens (128), every output of output_tokens (64)
/// - chat: lengths by kChatPrompts and kChatOutputs, with the means that the options name
/// - long-among-short: prompts of 16 tokens to twice the mean (128) less 16; every twentieth, the
///   first time the tenth, is 32 times the mean; outputs of 1 token to twice the mean (64) less 1
///
/// Lengths that do not fit the context are cut: an output to half of it, then the prompt to what
/// the output leaves. Neither lengths nor prompts depend on the rate. Throws
/// Error{kInvalidArgument} for another name, for numbers below their least, and for a context below
/// 4 tokens.
std::vector<TrafficRequest> make_traffic(const TrafficOptions& options, const TrafficModel& model);

}  // namespace di::bench
