#include "engine/admission.h"

#include <cmath>

#include <fmt/format.h>

namespace di::engine {
namespace {

constexpr std::size_t kMaxIdBytes = 256;
constexpr int kMaxPriority = 100;

Refusal invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

std::optional<Refusal> check_names(const Request& request) {
  if (request.id.empty()) return invalid("the request has no id");
  if (request.id.size() > kMaxIdBytes || request.user.size() > kMaxIdBytes) {
    return invalid(fmt::format("id and user may have {} bytes at most", kMaxIdBytes));
  }
  if (std::abs(request.priority) > kMaxPriority) {
    return invalid(fmt::format(
        "priority is {}, it must be between {} and {}",
        request.priority,
        -kMaxPriority,
        kMaxPriority
    ));
  }
  if (!(request.timeout_seconds >= 0) || !std::isfinite(request.timeout_seconds)) {
    return invalid(
        fmt::format("timeout_seconds is {}, it must be 0 or more", request.timeout_seconds)
    );
  }
  return std::nullopt;
}

std::optional<Refusal> check_prompt(const Request& request, const AdmissionLimits& limits) {
  const std::vector<int32_t>& prompt = request.prompt_token_ids;
  if (prompt.empty()) return invalid("the prompt has no tokens");
  if (std::ssize(prompt) >= limits.context) {
    return invalid(fmt::format(
        "the prompt has {} tokens and leaves no room for an answer in a context of {}",
        prompt.size(),
        limits.context
    ));
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= limits.vocab_size) {
      return invalid(fmt::format(
          "prompt token {} is {}, outside the vocabulary of {}", i, prompt[i], limits.vocab_size
      ));
    }
  }
  if (request.sampling.prompt_logprobs && limits.replay == "compact") {
    return invalid(
        "prompt_logprobs need every prompt row, compact replay skips some; use replay off or mask"
    );
  }
  return std::nullopt;
}

std::optional<Refusal> check_queue(
    const Request& request, const AdmissionLimits& limits, const sched::SchedulerCounts& counts
) {
  if (counts.num_waiting + request.sampling.n > limits.max_queued_requests) {
    return Refusal{
        ErrorCode::kBusy,
        fmt::format(
            "{} sequences wait, max_queued_requests is {}; try again later",
            counts.num_waiting,
            limits.max_queued_requests
        )};
  }
  const int64_t tokens = std::ssize(request.prompt_token_ids);
  if (counts.waiting_tokens + tokens > limits.max_queued_tokens) {
    return Refusal{
        ErrorCode::kBusy,
        fmt::format(
            "{} prompt tokens wait and this prompt has {}, max_queued_tokens is {}; try again "
            "later",
            counts.waiting_tokens,
            tokens,
            limits.max_queued_tokens
        )};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> check_request(
    const Request& request, const AdmissionLimits& limits, const sched::SchedulerCounts& counts
) {
  if (auto refusal = check_names(request)) return refusal;
  try {
    sampling::validate(request.sampling, limits.vocab_size);
  } catch (const Error& error) {
    return Refusal{error.code(), error.what()};
  }
  if (auto refusal = check_prompt(request, limits)) return refusal;
  return check_queue(request, limits, counts);
}

}  // namespace di::engine
