#include "options.h"

#include <charconv>
#include <string>
#include <system_error>
#include <type_traits>

#include <fmt/format.h>

#include "base/error.h"

namespace di::python {
namespace {

/// Calls `visit(name, field)` for each option.
template <class Options, class Visit>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("backend", options.backend);
  visit("isa", options.isa);
  visit("threads", options.threads);
  visit("context", options.context);
  visit("max_num_seqs", options.max_num_seqs);
  visit("max_num_batched_tokens", options.max_num_batched_tokens);
  visit("chunk", options.chunk);
  visit("num_blocks", options.num_blocks);
  visit("memory_utilization", options.memory_utilization);
  visit("async_scheduling", options.async_scheduling);
  visit("max_step_ms", options.max_step_ms);
  visit("patience_seconds", options.patience_seconds);
  visit("max_queued_requests", options.max_queued_requests);
  visit("max_queued_tokens", options.max_queued_tokens);
  visit("replay", options.replay);
  visit("replay_keep", options.replay_keep);
  visit("seed", options.seed);
  visit("peak_flops", options.peak_flops);
  visit("check_integrity", options.check_integrity);
}

[[noreturn]] void refuse(const char* name, const Json& value, const char* expected) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("option {} is {}, it must be {}", name, value.dump(), expected)
  );
}

void read(const char* name, const Json& value, std::string& field) {
  if (!value.is_string()) refuse(name, value, "a str");
  field = value.as_string();
}

void read(const char* name, const Json& value, bool& field) {
  if (!value.is_bool()) refuse(name, value, "a bool");
  field = value.as_bool();
}

void read(const char* name, const Json& value, double& field) {
  if (!value.is_number()) refuse(name, value, "a number");
  field = value.as_number();
}

template <class Integer>
void read(const char* name, const Json& value, Integer& field) {
  const char* expected =
      std::is_unsigned_v<Integer> ? "a whole number from 0 to 2^64 - 1" : "a whole number";
  const std::string digits = value.integer_text().value_or("");
  const char* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, field);
  if (error != std::errc() || last != end) refuse(name, value, expected);
}

}  // namespace

engine::EngineOptions options_from_json(const Json& values) {
  engine::EngineOptions options;
  for (const auto& [key, value] : values.as_object()) {
    bool known = false;
    for_each_option(options, [&](const char* name, auto& field) {
      if (key != name) return;
      known = true;
      read(name, value, field);
    });
    if (!known) {
      throw Error(
          ErrorCode::kInvalidArgument, fmt::format("there is no engine option called {}", key)
      );
    }
  }
  return options;
}

Json options_json(const engine::EngineOptions& options) {
  Json json = Json::Object{};
  for_each_option(options, [&](const char* name, const auto& field) { json.set(name, field); });
  return json;
}

}  // namespace di::python
