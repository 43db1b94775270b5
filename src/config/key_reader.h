// Reads one JSON object key by key, with the legal range beside each key, and refuses at the end
// whatever nobody asked for. Every complaint about a single key of config.json is worded here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace di {

/// The integers that a key may hold: min ≤ value ≤ max, in steps of `multiple_of`.
struct IntegerRange {
  int64_t min;
  int64_t max;
  int64_t multiple_of = 1;
};

/// The numbers that a key may hold, ends included.
struct NumberRange {
  double min;
  double max;
};

/// A key with one value that this engine runs.
struct FixedKey {
  const char* key;
  Json value;
  bool required;  ///< otherwise the key may be missing and means `value`
};

/// Reads the members of one object. All readers throw Error{kInvalidFile} naming file, key, what
/// was found and what was expected. A null member counts as missing.
class KeyReader {
 public:
  /// `where` is the file's name, `prefix` what stands before each key ("text_config." or "").
  /// `object` must outlive the reader.
  KeyReader(const Json& object, std::string where, std::string prefix);

  bool has(std::string_view key) const;

  int64_t integer(std::string_view key, IntegerRange range);
  int64_t integer_or(std::string_view key, int64_t fallback, IntegerRange range);
  double number(std::string_view key, NumberRange range);
  bool boolean_or(std::string_view key, bool fallback);
  std::string choice_or(
      std::string_view key,
      std::string_view fallback,
      std::initializer_list<std::string_view> choices
  );
  std::vector<int64_t> integers(std::string_view key, IntegerRange range);
  std::vector<int64_t> integers_or_empty(std::string_view key, IntegerRange range);

  /// A reader of the object called `key`, or nothing when it is missing.
  std::optional<KeyReader> object(std::string_view key);
  /// The same, refusing when it is missing.
  KeyReader required_object(std::string_view key);

  /// Throws Error{kUnsupported} when a member differs from its only value.
  void fixed(const std::vector<FixedKey>& keys);
  /// Accepts these keys with any value; nothing depends on them.
  void ignore(std::initializer_list<std::string_view> keys);

  /// Throws Error{kInvalidFile} when a member was neither read nor ignored.
  void finish() const;

 private:
  const Json* take(std::string_view key);
  const Json& take_required(std::string_view key);
  int64_t check_integer(std::string_view key, const Json& value, IntegerRange range) const;
  [[noreturn]] void refuse(std::string_view key, const Json& found, std::string_view expected)
      const;

  const Json* object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace di
