// One list of fields, read and written by kind; see params_json.h.
#include "sampling/params_json.h"

#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"

namespace di::sampling {
namespace {

/// Calls visit(name, member) for every field, in the order of the struct.
template <typename Visit>
void for_each_field(Visit visit) {
  using P = SamplingParams;
  visit("temperature", &P::temperature);
  visit("top_p", &P::top_p);
  visit("top_k", &P::top_k);
  visit("min_p", &P::min_p);
  visit("repetition_penalty", &P::repetition_penalty);
  visit("presence_penalty", &P::presence_penalty);
  visit("frequency_penalty", &P::frequency_penalty);
  visit("logit_bias", &P::logit_bias);
  visit("allowed_token_ids", &P::allowed_token_ids);
  visit("banned_token_ids", &P::banned_token_ids);
  visit("seed", &P::seed);
  visit("max_tokens", &P::max_tokens);
  visit("min_tokens", &P::min_tokens);
  visit("first_n_token_no_eos", &P::first_n_token_no_eos);
  visit("ignore_eos", &P::ignore_eos);
  visit("stop_token_ids", &P::stop_token_ids);
  visit("stop", &P::stop);
  visit("n", &P::n);
  visit("logprobs", &P::logprobs);
  visit("top_logprobs", &P::top_logprobs);
  visit("prompt_logprobs", &P::prompt_logprobs);
  visit("processed_logprobs", &P::processed_logprobs);
  visit("golden_token_ids", &P::golden_token_ids);
}

[[noreturn]] void refuse(std::string_view field, const char* expected, const Json& found) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "sampling parameter {}: expected {}, found {} {}",
          field,
          expected,
          found.kind(),
          found.dump().substr(0, 100)
      )
  );
}

/// A decimal integer that fits, or nothing.
template <typename Integer>
std::optional<Integer> integer_of(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Integer>
Integer read_integer(std::string_view field, const char* expected, const Json& json) {
  const auto value = integer_of<Integer>(json.integer_text().value_or(""));
  if (!value) refuse(field, expected, json);
  return *value;
}

void read(std::string_view field, const Json& json, bool& value) {
  if (!json.is_bool()) refuse(field, "true or false", json);
  value = json.as_bool();
}

void read(std::string_view field, const Json& json, double& value) {
  if (!json.is_number()) refuse(field, "a number", json);
  value = json.as_number();
}

void read(std::string_view field, const Json& json, int64_t& value) {
  value = read_integer<int64_t>(field, "an integer", json);
}

void read(std::string_view field, const Json& json, std::optional<uint64_t>& value) {
  value = read_integer<uint64_t>(field, "an integer from 0 to 2^64 - 1", json);
}

void read(std::string_view field, const Json& json, std::vector<int32_t>& value) {
  constexpr const char* kExpected = "an array of token ids";
  if (!json.is_array()) refuse(field, kExpected, json);
  value.clear();
  for (const Json& entry : json.as_array())
    value.push_back(read_integer<int32_t>(field, kExpected, entry));
}

void read(std::string_view field, const Json& json, std::vector<std::string>& value) {
  constexpr const char* kExpected = "an array of strings";
  if (!json.is_array()) refuse(field, kExpected, json);
  value.clear();
  for (const Json& entry : json.as_array()) {
    if (!entry.is_string()) refuse(field, kExpected, entry);
    value.push_back(entry.as_string());
  }
}

void read(std::string_view field, const Json& json, std::vector<LogitBias>& value) {
  constexpr const char* kExpected = "an object from token ids to numbers";
  if (!json.is_object()) refuse(field, kExpected, json);
  value.clear();
  for (const auto& [key, bias] : json.as_object()) {
    const auto token = integer_of<int32_t>(key);
    if (!token) refuse(field, kExpected, Json(key));
    if (!bias.is_number()) refuse(field, kExpected, bias);
    value.push_back({*token, static_cast<float>(bias.as_number())});
  }
}

template <typename T>
Json written(const T& value) {
  return Json(value);
}

Json written(const std::optional<uint64_t>& value) {
  return value ? Json(*value) : Json();
}

template <typename T>
Json written(const std::vector<T>& values) {
  Json::Array array;
  for (const T& value : values)
    array.emplace_back(value);
  return Json(std::move(array));
}

Json written(const std::vector<LogitBias>& biases) {
  Json::Object object;
  for (const LogitBias& entry : biases)
    object.emplace_back(std::to_string(entry.token), static_cast<double>(entry.bias));
  return Json(std::move(object));
}

/// Reads the member called `name` into its field; false when there is no such field.
bool read_member(const std::string& name, const Json& json, SamplingParams& params) {
  bool known = false;
  for_each_field([&](const char* field, auto member) {
    if (name != field) return;
    known = true;
    if (!json.is_null()) read(field, json, params.*member);
  });
  return known;
}

}  // namespace

Json to_json(const SamplingParams& params) {
  const SamplingParams defaults;
  Json::Object object;
  for_each_field([&](const char* field, auto member) {
    if (!(params.*member == defaults.*member)) {
      object.emplace_back(field, written(params.*member));
    }
  });
  return Json(std::move(object));
}

SamplingParams params_from_json(const Json& json) {
  if (!json.is_object()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("sampling parameters: expected an object, found {}", json.kind())
    );
  }
  SamplingParams params;
  for (const auto& [name, value] : json.as_object()) {
    if (read_member(name, value, params)) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "there is no sampling parameter {}; see docs/sampling.md for all", Json(name).dump()
        )
    );
  }
  return params;
}

}  // namespace di::sampling
