#include "engine/option_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/suggest.h"

namespace di::engine {
namespace {

using O = EngineOptions;

constexpr double kNoLimit = OptionRange::kNoLimit;

std::vector<OptionInfo> make_table() {
  return {
      {"model", &O::model, "", {}, "Model folder; without one, the bundled models/seedling", 'm'},
      {"backend",
       &O::backend,
       "",
       {.choices = {"cpu", "ref"}},
       "cpu, or ref: the slow, literal oracle"},
      {"isa",
       &O::isa,
       "",
       {.choices = {"auto", "avx2", "avx512", "vnni", "amx"}},
       "Kernels of the cpu backend; auto: the best that the processor has"},
      {"threads",
       &O::threads,
       "threads",
       {0, 1024},
       "Compute threads; 0: one for each processor",
       't'},
      {"context",
       &O::context,
       "tokens",
       {0, kNoLimit},
       "Tokens that prompt and answer may have together, which memory is planned for; 0: the "
       "model's, at most 8192"},
      {"max_num_seqs",
       &O::max_num_seqs,
       "sequences",
       {1, 65536},
       "Sequences that run at once: more share each reading of the weights, and need memory"},
      {"max_num_batched_tokens",
       &O::max_num_batched_tokens,
       "rows",
       {1, 65536},
       "Rows of one step: more compute prompts faster, fewer keep steps short"},
      {"chunk",
       &O::chunk,
       "rows",
       {0, 65536},
       "Prompt rows of one sequence in one step; 0: no such limit; the text does not depend on it"},
      {"num_blocks",
       &O::num_blocks,
       "blocks of 128 tokens",
       {0, kNoLimit},
       "Size of the cache; 0: what the sequences can need and memory allows"},
      {"memory_utilization",
       &O::memory_utilization,
       "share",
       {0.01, 1},
       "Share of the available memory that may be planned; the rest is for others"},
      {"async_scheduling",
       &O::async_scheduling,
       "",
       {},
       "Plan a step while the one before it runs; the text does not depend on it"},
      {"max_step_ms",
       &O::max_step_ms,
       "ms",
       {0, 1e6},
       "Target for steps that carry decode rows, kept by fewer prompt rows beside them, so that "
       "streams flow while long prompts come in; 0: none"},
      {"patience_seconds",
       &O::patience_seconds,
       "s",
       {0, 1e6},
       "A request without a timeout is due this long after its arrival: less serves requests in "
       "the order in which they came, more lets those with timeouts go first"},
      {"max_queued_requests",
       &O::max_queued_requests,
       "sequences",
       {1, kNoLimit},
       "Sequences that wait at once; requests beyond them are refused instead of waiting long"},
      {"max_queued_tokens",
       &O::max_queued_tokens,
       "tokens",
       {1, kNoLimit},
       "Prompt tokens that wait at once; requests beyond them are refused"},
      {"replay",
       &O::replay,
       "",
       {.choices = {"off", "compact", "mask"}},
       "Bounded replay of the decoder at prefill: faster, approximate"},
      {"replay_keep",
       &O::replay_keep,
       "rows",
       {0, kNoLimit},
       "Last prompt rows that bounded replay computes in full; 0: as few as allowed"},
      {"seed",
       &O::seed,
       "",
       {0, std::numeric_limits<double>::infinity()},
       "Requests without a seed draw theirs from this one; the same seed, requests and order give "
       "the same texts"},
      {"peak_flops",
       &O::peak_flops,
       "FLOP/s",
       {0, 1e20},
       "FP8-equivalent peak of the machine, which statistics are then given as a share of; 0: "
       "unknown"},
      {"check_integrity",
       &O::check_integrity,
       "",
       {},
       "Check the ledger of memory after each step, to find faults of the engine itself"},
      {"banned_tokens",
       &O::banned_tokens,
       "token ids",
       {},
       "Ids that no request draws, such as 0..3,7"},
      {"record",
       &O::record,
       "",
       {},
       "Log the parameters, lengths, hashes and times of all requests into this file"},
      {"record_content",
       &O::record_content,
       "",
       {},
       "Log prompts and outputs, too: what `deepinfer replay` needs"},
  };
}

/// "a whole number from 1 to 65536", "a number, at least 0".
std::string limits_text(const char* kind, const OptionRange& range) {
  if (range.most >= kNoLimit) return fmt::format("{}, at least {}", kind, range.least);
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
using FieldType = std::remove_cvref_t<decltype(std::declval<O&>().*std::declval<Pointer>())>;

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

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> table = make_table();
  return table;
}

const OptionInfo& find_option(std::string_view name) {
  std::vector<std::string> names;
  for (const OptionInfo& option : option_table()) {
    if (option.name == name) return option;
    names.push_back(option.name);
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("there is no engine option called {}{}", name, suggestion(name, names))
  );
}

}  // namespace di::engine
