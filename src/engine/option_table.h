// The table of engine options: everything that is said about each field of EngineOptions, once.
// Flags, variables, config files, messages and docs/options.md are made from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/options.h"

namespace di::engine {

/// The field that an option is kept in.
using OptionField = std::variant<
    std::string EngineOptions::*,
    bool EngineOptions::*,
    int EngineOptions::*,
    int64_t EngineOptions::*,
    uint64_t EngineOptions::*,
    double EngineOptions::*>;

/// Values that an option may have, ends included.
struct OptionRange {
  double least = 0;
  double most = 0;                        ///< kNoLimit: whatever its type holds
  std::vector<std::string> choices = {};  ///< of a text; none: any text
  static constexpr double kNoLimit = 1e18;
};

/// One option.
struct OptionInfo {
  std::string name;  ///< of the field, and the key in a config file
  OptionField field;
  std::string unit;  ///< empty: it has none
  OptionRange range;
  std::string help;  ///< what it is, and why one would change it
  char letter = 0;   ///< short flag; 0: it has none

  /// "--max-num-seqs"
  std::string flag() const;
  /// "DEEPINFER_MAX_NUM_SEQS"
  std::string variable() const;
  /// "a whole number from 1 to 65536", "cpu or ref", "on or off", "any text"
  std::string range_text() const;

  /// The value in `options`: a string, bool, integer or double.
  Json get(const EngineOptions& options) const;

  /// Sets it. Throws Error{kInvalidArgument} naming option, value and range when `value` is of
  /// another kind or out of range.
  void set(EngineOptions& options, const Json& value) const;

  /// The value that `text` spells, on a command line or in a variable; set() judges it. Booleans
  /// are on, true, 1 and off, false, 0.
  Json parse(const std::string& text) const;

  /// The opposite of parse().
  std::string text_of(const Json& value) const;
};

/// All options, in the order of EngineOptions.
const std::vector<OptionInfo>& option_table();

/// The option called `name`. Throws Error{kInvalidArgument} with a suggestion when there is none.
const OptionInfo& find_option(std::string_view name);

}  // namespace di::engine
