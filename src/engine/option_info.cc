// What one row of the table of options does: names, texts, and values in and out.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/option_table.h"

namespace di::engine {
namespace {

/// "a whole number from 1 to 65536", "a number, at least 0".
std::string limits_text(const char* kind, const OptionRange& range) {
  if (range.most >= OptionRange::kNoLimit) return fmt::format("{}, at least {}", kind, range.least);
  return fmt::format("{} from {} to {}", kind, range.least, range.most);
}

[[noreturn]] void refuse(const OptionInfo& option, const Json& value) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "{} is {}, it must be {}", option.name, value.dump().substr(0, 200), option.range_text()
      )
  );
}

void assign(const OptionInfo& option, const Json& value, std::string& field) {
  const std::vector<std::string>& choices = option.range.choices;
  if (!value.is_string()) refuse(option, value);
  const std::string& text = value.as_string();
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
    refuse(option, value);
  }
  field = text;
}

void assign(const OptionInfo& option, const Json& value, bool& field) {
  if (!value.is_bool()) refuse(option, value);
  field = value.as_bool();
}

void assign(const OptionInfo& option, const Json& value, double& field) {
  if (!value.is_number()) refuse(option, value);
  const double number = value.as_number();
  if (!(number >= option.range.least && number <= option.range.most)) refuse(option, value);
  field = number;
}

template <class Integer>
void assign(const OptionInfo& option, const Json& value, Integer& field) {
  const std::string digits = value.integer_text().value_or("");
  const char* end = digits.data() + digits.size();
  Integer number = 0;
  const auto [last, error] = std::from_chars(digits.data(), end, number);
  const auto size = static_cast<double>(number);
  const bool fits = size >= option.range.least && size <= option.range.most;
  if (error != std::errc() || last != end || digits.empty() || !fits) refuse(option, value);
  field = number;
}

/// The type of the field that a pointer to a member points to.
template <class Pointer>
using FieldType =
    std::remove_cvref_t<decltype(std::declval<EngineOptions&>().*std::declval<Pointer>())>;

/// An integer or double, or the text itself when it is neither.
Json parse_number(const std::string& text) {
  const char* end = text.data() + text.size();
  const auto reads = [&](auto& number) {
    const auto [last, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && last == end;
  };
  int64_t integer = 0;
  if (reads(integer)) return integer;
  uint64_t large = 0;
  if (reads(large)) return large;
  double number = 0;
  if (reads(number) && std::isfinite(number)) return number;
  return text;
}

Json parse_switch(const std::string& text) {
  if (text == "on" || text == "true" || text == "1") return true;
  if (text == "off" || text == "false" || text == "0") return false;
  return text;
}

}  // namespace

std::string OptionInfo::flag() const {
  std::string flag = "--" + name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string OptionInfo::variable() const {
  std::string variable = "DEEPINFER_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return variable;
}

std::string OptionInfo::range_text() const {
  return std::visit(
      [&](auto pointer) -> std::string {
        using T = FieldType<decltype(pointer)>;
        if constexpr (std::is_same_v<T, bool>) return "on or off";
        if constexpr (std::is_same_v<T, double>) return limits_text("a number", range);
        if constexpr (std::is_same_v<T, std::string>) {
          if (range.choices.empty()) return "any text";
          return fmt::format("one of {}", fmt::join(range.choices, ", "));
        }
        return limits_text("a whole number", range);
      },
      field
  );
}

Json OptionInfo::get(const EngineOptions& options) const {
  return std::visit([&](auto pointer) { return Json(options.*pointer); }, field);
}

void OptionInfo::set(EngineOptions& options, const Json& value) const {
  std::visit([&](auto pointer) { assign(*this, value, options.*pointer); }, field);
}

Json OptionInfo::parse(const std::string& text) const {
  return std::visit(
      [&](auto pointer) -> Json {
        using T = FieldType<decltype(pointer)>;
        if constexpr (std::is_same_v<T, std::string>) return text;
        if constexpr (std::is_same_v<T, bool>) return parse_switch(text);
        return parse_number(text);
      },
      field
  );
}

std::string OptionInfo::text_of(const Json& value) const {
  if (value.is_bool()) return value.as_bool() ? "on" : "off";
  if (value.is_string()) return value.as_string();
  const std::string text = value.dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace di::engine
