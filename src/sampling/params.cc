// Which parameters make sense; see params.h.
#include "sampling/params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, why);
}

template <typename T>
void check_range(const char* name, T value, T low, T high) {
  if (!(value >= low && value <= high)) {
    refuse(fmt::format("{} is {}, it must be from {} to {}", name, value, low, high));
  }
}

void check_size(const char* name, std::size_t size, int64_t most) {
  if (size > static_cast<std::size_t>(most)) {
    refuse(fmt::format("{} has {} entries, at most {} are allowed", name, size, most));
  }
}

void check_ids(const char* name, std::span<const int32_t> ids, int64_t low, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < low || id >= vocab_size) {
      refuse(fmt::format(
          "{} holds the token id {}, it must be from {} to {}", name, id, low, vocab_size - 1
      ));
    }
  }
}

void check_distribution(const SamplingParams& params) {
  constexpr double kMost = std::numeric_limits<double>::max();
  check_range("temperature", params.temperature, 0.0, kMost);
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    refuse(fmt::format("top_p is {}, it must be above 0 and at most 1", params.top_p));
  }
  check_range<int64_t>("top_k", params.top_k, -1, kMaxTokens);
  check_range("min_p", params.min_p, 0.0, 1.0);
  check_range("repetition_penalty", params.repetition_penalty, 0.01, 100.0);
  check_range("presence_penalty", params.presence_penalty, -2.0, 2.0);
  check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0);
}

void check_logit_bias(const std::vector<LogitBias>& bias, int64_t vocab_size) {
  check_size("logit_bias", bias.size(), kMaxLogitBias);
  std::vector<int32_t> ids;
  for (const LogitBias& entry : bias) {
    check_range(
        fmt::format("logit_bias of token {}", entry.token).c_str(), entry.bias, -100.0F, 100.0F
    );
    ids.push_back(entry.token);
  }
  check_ids("logit_bias", ids, 0, vocab_size);
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) {
    refuse(fmt::format("logit_bias names the token id {} twice; give it one bias", *twice));
  }
}

/// Something must be left to draw.
void check_allowed_and_banned(const SamplingParams& params, int64_t vocab_size) {
  check_size("allowed_token_ids", params.allowed_token_ids.size(), vocab_size);
  check_size("banned_token_ids", params.banned_token_ids.size(), vocab_size);
  check_ids("allowed_token_ids", params.allowed_token_ids, 0, vocab_size);
  check_ids("banned_token_ids", params.banned_token_ids, 0, vocab_size);
  std::vector<int32_t> banned = params.banned_token_ids;
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  const std::vector<int32_t>& allowed = params.allowed_token_ids;
  const bool none_left = allowed.empty()
                             ? std::ssize(banned) == vocab_size
                             : std::all_of(allowed.begin(), allowed.end(), [&](int32_t id) {
                                 return std::binary_search(banned.begin(), banned.end(), id);
                               });
  if (none_left) {
    refuse("banned_token_ids holds every token that may be drawn; leave at least one");
  }
}

void check_stop_strings(const std::vector<std::string>& stop) {
  check_size("stop", stop.size(), kMaxStopStrings);
  for (const std::string& text : stop) {
    if (text.empty()) refuse("stop holds an empty string; a stop string has at least one byte");
    if (text.size() > static_cast<std::size_t>(kMaxStopStringBytes)) {
      refuse(fmt::format(
          "stop holds a string of {} bytes, at most {} are allowed",
          text.size(),
          kMaxStopStringBytes
      ));
    }
  }
}

void check_end(const SamplingParams& params, int64_t vocab_size) {
  check_range<int64_t>("max_tokens", params.max_tokens, 1, kMaxTokens);
  check_range<int64_t>("min_tokens", params.min_tokens, 0, params.max_tokens);
  check_range<int64_t>("first_n_token_no_eos", params.first_n_token_no_eos, 0, kMaxTokens);
  check_size("stop_token_ids", params.stop_token_ids.size(), kMaxStopTokenIds);
  check_ids("stop_token_ids", params.stop_token_ids, 0, vocab_size);
  check_stop_strings(params.stop);
}

}  // namespace

void validate(const SamplingParams& params, int64_t vocab_size) {
  check_distribution(params);
  check_logit_bias(params.logit_bias, vocab_size);
  check_allowed_and_banned(params, vocab_size);
  check_end(params, vocab_size);
  check_range<int64_t>("n", params.n, 1, kMaxChoices);
  check_range<int64_t>("top_logprobs", params.top_logprobs, 0, kMaxTopLogprobs);
  check_size("golden_token_ids", params.golden_token_ids.size(), kMaxGoldenTokenIds);
  check_ids("golden_token_ids", params.golden_token_ids, -1, vocab_size);
}

bool ends_choice(const SamplingParams& params, int32_t eos, int32_t token) {
  const std::vector<int32_t>& stops = params.stop_token_ids;
  return (token == eos && !params.ignore_eos) ||
         std::find(stops.begin(), stops.end(), token) != stops.end();
}

uint64_t choice_seed(uint64_t seed, int64_t choice) {
  return choice == 0 ? seed : derived_seed(seed, choice, Stream::kChoiceSeed);
}

uint64_t request_seed(uint64_t engine_seed, int64_t request) {
  return derived_seed(engine_seed, request, Stream::kRequestSeed);
}

}  // namespace di::sampling
