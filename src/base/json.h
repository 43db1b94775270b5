// JSON values. The only room entry that touches the JSON library is json.cc.
//
// Objects keep the order of their keys. Numbers keep their kind: an integer that fits 64 bits stays
// an integer, a larger one becomes a double. Text is UTF-8 and checked on the way in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace di {

/// What parse() accepts beyond the grammar.
struct JsonLimits {
  int max_depth = 128;                 ///< nesting of arrays and objects; deeper text is refused
  bool reject_duplicate_keys = false;  ///< otherwise the last value wins, at the first position
};

/// One JSON value; a plain value type.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  // NOLINTBEGIN(google-explicit-constructor): a value of each kind reads as a Json
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(int64_t{value}) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  /// Reads one JSON text. Throws Error{kInvalidFile} whose message starts with `where` and names
  /// the byte at which the text stops being JSON.
  static Json parse(std::string_view text, std::string_view where, const JsonLimits& limits = {});

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// The value, of the kind asked for. Throws Error{kInvalidFile} when it is of another kind, or an
  /// integer outside int64.
  bool as_bool() const;
  int64_t as_integer() const;
  double as_number() const;  ///< integers convert
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  /// The member called `key`, or nullptr (also when this is no object). Linear in the members.
  const Json* find(std::string_view key) const;

  /// The member called `key`; throws Error{kInvalidFile} when there is none.
  const Json& at(std::string_view key) const;

  /// Sets or appends a member; turns a null value into an object first.
  Json& set(std::string key, Json value);

  /// The text of this value in one line, as Python's json.dumps(ensure_ascii=False) writes it:
  /// ", " and ": " as separators, floats as repr(). The exponent of a float has at least
  /// `exponent_digits` digits; Python writes two.
  std::string dump(int exponent_digits = 2) const;

  /// The decimal digits of an integer, or nothing for any other kind.
  std::optional<std::string> integer_text() const;

  /// The kind's name for messages: "null", "boolean", "integer", "number", "string", "array",
  /// "object".
  const char* kind() const;

  bool operator==(const Json&) const = default;

 private:
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_{
      nullptr};
};

}  // namespace di
