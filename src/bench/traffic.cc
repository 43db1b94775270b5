// Lengths, prompts and arrivals are drawn from streams of their own, so that one does not depend on
// how many numbers another took.
#include "bench/traffic.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/seeded_random.h"

namespace di::bench {
namespace {

enum Stream : uint64_t { kLengths, kPrompts, kArrivals };

SeededRandom random_of(const TrafficOptions& options, Stream stream) {
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15u;  // seeds of neighbours differ in many bits
  return SeededRandom((options.seed * 3 + stream + 1) * kSpread);
}

struct Lengths {
  int64_t prompt = 1;
  int64_t output = 1;
};

int64_t or_else(int64_t given, double own) {
  return given > 0 ? given : static_cast<int64_t>(own);
}

int64_t draw(SeededRandom& random, const LengthLaw& law, double mean) {
  const double median = mean / std::exp(law.sigma * law.sigma / 2);
  return std::max<int64_t>(1, std::llround(random.log_normal(median, law.sigma)));
}

Lengths chat(const TrafficOptions& options, SeededRandom& random) {
  const auto prompt = static_cast<double>(or_else(options.prompt_tokens, kChatPrompts.mean));
  const auto output = static_cast<double>(or_else(options.output_tokens, kChatOutputs.mean));
  return {draw(random, kChatPrompts, prompt), draw(random, kChatOutputs, output)};
}

Lengths long_among_short(const TrafficOptions& options, int64_t index, SeededRandom& random) {
  constexpr int64_t kLeast = 16;
  const int64_t prompt = std::max(kLeast, or_else(options.prompt_tokens, 128));
  const int64_t output = or_else(options.output_tokens, 64);
  const int64_t short_prompt = random.between(kLeast, 2 * prompt - kLeast);
  return {index % 20 == 9 ? 32 * prompt : short_prompt, random.between(1, 2 * output - 1)};
}

Lengths lengths_of(const TrafficOptions& options, int64_t index, SeededRandom& random) {
  if (options.lengths == "chat") return chat(options, random);
  if (options.lengths == "long-among-short") return long_among_short(options, index, random);
  return {or_else(options.prompt_tokens, 128), or_else(options.output_tokens, 64)};
}

Lengths cut(const Lengths& lengths, int64_t context) {
  const int64_t output = std::min(lengths.output, context / 2);
  return {std::min(lengths.prompt, context - output), output};
}

std::vector<int32_t> prompt_of(int64_t length, const TrafficModel& model, SeededRandom& random) {
  std::vector<int32_t> prompt(static_cast<std::size_t>(length));
  if (model.text.empty()) {
    for (int32_t& id : prompt)
      id = static_cast<int32_t>(random.between(0, model.vocab_size - 1));
    return prompt;
  }
  auto at = static_cast<std::size_t>(random.between(0, std::ssize(model.text) - 1));
  for (int32_t& id : prompt)
    id = model.text[at++ % model.text.size()];
  return prompt;
}

void check(const TrafficOptions& options, const TrafficModel& model) {
  const auto& names = traffic_names();
  if (std::find(names.begin(), names.end(), options.lengths) == names.end()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "no traffic is called \"{}\"; there are {}", options.lengths, fmt::join(names, ", ")
        )
    );
  }
  const bool counts = options.num_requests >= 0 && options.prompt_tokens >= 0 &&
                      options.output_tokens >= 0 && options.rate >= 0;
  if (!counts || model.vocab_size < 1 || model.context < 4) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "traffic of {} requests at {} a second, prompts of {} and outputs of {} tokens, {} ids "
            "and a context of {}; none may be negative, and the context needs 4 tokens",
            options.num_requests,
            options.rate,
            options.prompt_tokens,
            options.output_tokens,
            model.vocab_size,
            model.context
        )
    );
  }
}

}  // namespace

const std::vector<std::string>& traffic_names() {
  static const std::vector<std::string> names{"fixed", "chat", "long-among-short"};
  return names;
}

std::vector<TrafficRequest> make_traffic(const TrafficOptions& options, const TrafficModel& model) {
  check(options, model);
  SeededRandom lengths = random_of(options, kLengths);
  SeededRandom prompts = random_of(options, kPrompts);
  SeededRandom arrivals = random_of(options, kArrivals);
  std::vector<TrafficRequest> traffic;
  double now = 0;
  for (int64_t i = 0; i < options.num_requests; ++i) {
    const Lengths of_this = cut(lengths_of(options, i, lengths), model.context);
    if (options.rate > 0) now += arrivals.exponential(1 / options.rate);
    traffic.push_back({now, prompt_of(of_this.prompt, model, prompts), of_this.output});
  }
  return traffic;
}

}  // namespace di::bench
