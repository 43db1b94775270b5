#include "config/key_reader.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace di {
namespace {

/// The value as a message shows it: JSON, cut to a line's length at a character's edge.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump();
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return text.substr(0, end) + "…";
}

std::string described(IntegerRange range) {
  if (range.min == range.max) return fmt::format("the integer {}", range.min);
  const std::string step =
      range.multiple_of > 1 ? fmt::format(", a multiple of {}", range.multiple_of) : "";
  return fmt::format("an integer from {} to {}{}", range.min, range.max, step);
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
  return a == b;
}

}  // namespace

KeyReader::KeyReader(const Json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    const std::string name = prefix_.empty() ? "the file" : prefix_.substr(0, prefix_.size() - 1);
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format("{}: {} is {}, expected an object", where_, name, shown(object))
    );
  }
}

bool KeyReader::has(std::string_view key) const {
  const Json* value = object_->find(key);
  return value != nullptr && !value->is_null();
}

int64_t KeyReader::integer(std::string_view key, IntegerRange range) {
  return check_integer(key, take_required(key), range);
}

int64_t KeyReader::integer_or(std::string_view key, int64_t fallback, IntegerRange range) {
  const Json* value = take(key);
  return value == nullptr ? fallback : check_integer(key, *value, range);
}

double KeyReader::number(std::string_view key, NumberRange range) {
  const Json& value = take_required(key);
  const bool legal =
      value.is_number() && range.min <= value.as_number() && value.as_number() <= range.max;
  if (!legal) refuse(key, value, fmt::format("a number from {} to {}", range.min, range.max));
  return value.as_number();
}

bool KeyReader::boolean_or(std::string_view key, bool fallback) {
  const Json* value = take(key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) refuse(key, *value, "true or false");
  return value->as_bool();
}

std::string KeyReader::choice_or(
    std::string_view key, std::string_view fallback, std::initializer_list<std::string_view> choices
) {
  const Json* value = take(key);
  if (value == nullptr) return std::string(fallback);
  const bool legal = value->is_string() &&
                     std::find(choices.begin(), choices.end(), value->as_string()) != choices.end();
  if (!legal) refuse(key, *value, fmt::format("one of \"{}\"", fmt::join(choices, "\", \"")));
  return value->as_string();
}

std::vector<int64_t> KeyReader::integers(std::string_view key, IntegerRange range) {
  constexpr std::size_t kLongest = 4096;
  const Json& value = take_required(key);
  if (!value.is_array() || value.as_array().size() > kLongest) {
    refuse(key, value, fmt::format("an array of at most {} integers", kLongest));
  }
  std::vector<int64_t> result;
  for (const Json& item : value.as_array()) {
    result.push_back(check_integer(fmt::format("{}[{}]", key, result.size()), item, range));
  }
  return result;
}

std::vector<int64_t> KeyReader::integers_or_empty(std::string_view key, IntegerRange range) {
  if (take(key) == nullptr) return {};
  return integers(key, range);
}

std::optional<KeyReader> KeyReader::object(std::string_view key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  return KeyReader(*value, where_, fmt::format("{}{}.", prefix_, key));
}

KeyReader KeyReader::required_object(std::string_view key) {
  return KeyReader(take_required(key), where_, fmt::format("{}{}.", prefix_, key));
}

void KeyReader::fixed(const std::vector<FixedKey>& keys) {
  for (const FixedKey& fixed : keys) {
    const Json* value = fixed.required ? &take_required(fixed.key) : take(fixed.key);
    if (value == nullptr || same_value(*value, fixed.value)) continue;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "{}: {}{} is {}, this engine runs {} only",
            where_,
            prefix_,
            fixed.key,
            shown(*value),
            fixed.value.dump()
        )
    );
  }
}

void KeyReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    known_.emplace(key);
}

void KeyReader::finish() const {
  for (const auto& [key, value] : object_->as_object()) {
    if (known_.contains(key)) continue;
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "{}: unknown key {} = {}; it could change what the model computes, so it must "
            "be understood or removed",
            where_,
            shown(Json(prefix_ + key)),
            shown(value)
        )
    );
  }
}

const Json* KeyReader::take(std::string_view key) {
  known_.emplace(key);
  const Json* value = object_->find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json& KeyReader::take_required(std::string_view key) {
  const Json* value = take(key);
  if (value == nullptr) {
    throw Error(
        ErrorCode::kInvalidFile, fmt::format("{}: the key {}{} is missing", where_, prefix_, key)
    );
  }
  return *value;
}

int64_t KeyReader::check_integer(std::string_view key, const Json& value, IntegerRange range)
    const {
  const bool small = value.is_integer() && value.as_number() < 0x1p62;
  const bool legal = small && range.min <= value.as_integer() && value.as_integer() <= range.max &&
                     value.as_integer() % range.multiple_of == 0;
  if (!legal) refuse(key, value, described(range));
  return value.as_integer();
}

void KeyReader::refuse(std::string_view key, const Json& found, std::string_view expected) const {
  throw Error(
      ErrorCode::kInvalidFile,
      fmt::format("{}: {}{} is {}, expected {}", where_, prefix_, key, shown(found), expected)
  );
}

}  // namespace di
