#include "base/json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace di {
namespace {

/// Finds the members of one growing object by key: by comparing while there are few, then through
/// a table of hashes. Small objects, of which files hold many, cost no memory of their own.
class KeyTable {
 public:
  /// The position of the member called `key` among `members`, or members.size() when it is new and
  /// about to be appended.
  std::size_t find_or_add(const Json::Object& members, std::string_view key) {
    constexpr std::size_t kFew = 16;
    if (members.size() < kFew) {
      const auto same = [&](const auto& member) { return member.first == key; };
      const auto found = std::find_if(members.begin(), members.end(), same);
      return static_cast<std::size_t>(found - members.begin());
    }
    if (slots_.size() < 2 * members.size() + 2) rebuild(members);
    std::size_t& slot = slots_[slot_of(members, key)];
    if (slot == kEmpty) slot = members.size();
    return slot;
  }

 private:
  static constexpr std::size_t kEmpty = static_cast<std::size_t>(-1);

  /// The slot that holds `key`, or the empty one where it belongs.
  std::size_t slot_of(const Json::Object& members, std::string_view key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = std::hash<std::string_view>()(key) & mask;
    while (slots_[slot] != kEmpty && members[slots_[slot]].first != key)
      slot = (slot + 1) & mask;
    return slot;
  }

  void rebuild(const Json::Object& members) {
    slots_.assign(std::bit_ceil(4 * members.size()), kEmpty);
    for (std::size_t i = 0; i < members.size(); ++i)
      slots_[slot_of(members, members[i].first)] = i;
  }

  std::vector<std::size_t> slots_;  // positions of members; a power of two, at most half full
};

/// Builds a Json from the library's events, so that depth and duplicate keys are ours to judge.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json result;
  std::string failure;  ///< why parsing stopped; empty when it did not

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= uint64_t{INT64_MAX}) return add(Json(static_cast<int64_t>(value)));
    return add(Json(uint64_t{value}));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(Json(Json::Object{})); }
  bool start_array(std::size_t) override { return open(Json(Json::Array{})); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Level& level = open_.back();
    Json::Object& members = level.value.as_object();
    level.member = level.keys.find_or_add(members, value);
    const bool is_new = level.member == members.size();
    if (!is_new && limits_.reject_duplicate_keys) {
      return fail(fmt::format("the key \"{}\" stands twice in one object", value));
    }
    if (is_new) members.emplace_back(std::move(value), Json());
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error)
      override {
    // "[id] parse error at line 1, column 7: reason; last read: 'text'", or "[id] reason": the text
    // is left out because it may be any bytes, and long.
    std::string_view reason = error.what();
    for (const std::string_view before : {"] ", ": "}) {
      const auto place = reason.find(before);
      if (place != std::string_view::npos) reason.remove_prefix(place + before.size());
    }
    reason = reason.substr(0, std::min<std::size_t>(reason.find("; last read: "), 160));
    return fail(fmt::format("not JSON at byte {}: {}", byte, reason));
  }

 private:
  struct Level {
    Json value;
    KeyTable keys;
    std::size_t member = 0;
  };

  bool fail(std::string why) {
    failure = std::move(why);
    return false;
  }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    open_.push_back({std::move(value), {}, 0});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (Level& level = open_.back(); level.value.is_array()) {
      level.value.as_array().push_back(std::move(value));
    } else {
      level.value.as_object()[level.member].second = std::move(value);
    }
    return true;
  }

  JsonLimits limits_;
  std::vector<Level> open_;
};

/// Python's repr of a float: shortest digits, always with a point or an exponent.
std::string float_text(double value, int exponent_digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  // fmt writes two digits of exponent at least, after a sign.
  const auto exponent = text.find('e');
  if (exponent_digits < 2 && exponent != std::string::npos && text[exponent + 2] == '0') {
    text.erase(exponent + 2, 1);
  }
  return text;
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append(std::string& out, const Json& json, int exponent_digits) {
  if (const auto integer = json.integer_text()) {
    out += *integer;
  } else if (json.is_null()) {
    out += "null";
  } else if (json.is_bool()) {
    out += json.as_bool() ? "true" : "false";
  } else if (json.is_string()) {
    append_string(out, json.as_string());
  } else if (json.is_array()) {
    out += '[';
    bool first = true;
    for (const Json& item : json.as_array()) {
      if (!first) out += ", ";
      first = false;
      append(out, item, exponent_digits);
    }
    out += ']';
  } else if (json.is_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : json.as_object()) {
      if (!first) out += ", ";
      first = false;
      append_string(out, key);
      out += ": ";
      append(out, value, exponent_digits);
    }
    out += '}';
  } else {
    out += float_text(json.as_number(), exponent_digits);
  }
}

[[noreturn]] void wrong_kind(const char* expected, const char* found) {
  throw Error(ErrorCode::kInvalidFile, fmt::format("expected {}, found {}", expected, found));
}

}  // namespace

Json Json::parse(std::string_view text, std::string_view where, const JsonLimits& limits) {
  Builder builder(limits);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!complete) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {}", where, builder.failure));
  }
  return std::move(builder.result);
}

bool Json::as_bool() const {
  if (!is_bool()) wrong_kind("a boolean", kind());
  return std::get<bool>(value_);
}

int64_t Json::as_integer() const {
  if (!std::holds_alternative<int64_t>(value_)) wrong_kind("an integer within 64 bits", kind());
  return std::get<int64_t>(value_);
}

double Json::as_number() const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value_)) return static_cast<double>(*number);
  if (!std::holds_alternative<int64_t>(value_)) wrong_kind("a number", kind());
  return static_cast<double>(std::get<int64_t>(value_));
}

const std::string& Json::as_string() const {
  if (!is_string()) wrong_kind("a string", kind());
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  if (!is_array()) wrong_kind("an array", kind());
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  if (!is_object()) wrong_kind("an object", kind());
  return std::get<Object>(value_);
}

Json::Array& Json::as_array() {
  if (!is_array()) wrong_kind("an array", kind());
  return std::get<Array>(value_);
}

Json::Object& Json::as_object() {
  if (!is_object()) wrong_kind("an object", kind());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : as_object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("the key \"{}\" is missing", key));
  }
  return *member;
}

Json& Json::set(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  for (auto& [name, member] : as_object()) {
    if (name == key) {
      member = std::move(value);
      return *this;
    }
  }
  as_object().emplace_back(std::move(key), std::move(value));
  return *this;
}

std::optional<std::string> Json::integer_text() const {
  if (const auto* number = std::get_if<int64_t>(&value_)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<uint64_t>(&value_)) return fmt::format("{}", *number);
  return std::nullopt;
}

std::string Json::dump(int exponent_digits) const {
  std::string out;
  append(out, *this, exponent_digits);
  return out;
}

const char* Json::kind() const {
  static constexpr const char* kNames[] = {
      "null", "boolean", "integer", "integer", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

}  // namespace di
