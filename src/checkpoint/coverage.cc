#include "checkpoint/coverage.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"

namespace di::checkpoint {
namespace {

/// "2 tensors are missing: a, b", or nothing for an empty list.
void append_finding(std::string& text, std::string_view what, std::vector<std::string> items) {
  constexpr std::size_t kShown = 3;
  if (items.empty()) return;
  const std::size_t count = items.size();
  const std::size_t shown = std::min(count, kShown);
  std::partial_sort(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), items.end());
  items.resize(shown);
  text += fmt::format(
      "{}{} {}: {}{}",
      text.empty() ? "" : "; ",
      count,
      what,
      fmt::join(items, ", "),
      count > shown ? ", …" : ""
  );
}

/// The names of `found` that nobody expects.
std::vector<std::string> names_beside(
    const std::vector<ExpectedTensor>& expected, const TensorsByName& found
) {
  std::unordered_set<std::string_view> known;
  for (const ExpectedTensor& tensor : expected)
    known.insert(tensor.name);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : found) {
    if (!known.contains(name)) names.push_back(Json(name).dump());
  }
  return names;
}

}  // namespace

void check_coverage(
    const std::vector<ExpectedTensor>& expected, const TensorsByName& found, std::string_view where
) {
  std::vector<std::string> missing;
  std::vector<std::string> different;
  for (const ExpectedTensor& tensor : expected) {
    const auto entry = found.find(tensor.name);
    if (entry == found.end()) {
      missing.push_back(tensor.name);
    } else if (const TensorRef& has = *entry->second;
               has.dtype != tensor.dtype || has.shape != tensor.shape) {
      different.push_back(fmt::format(
          "{} is {} instead of {}",
          tensor.name,
          described(has.dtype, has.shape),
          described(tensor.dtype, tensor.shape)
      ));
    }
  }
  std::vector<std::string> unexpected;
  if (found.size() != expected.size() - missing.size()) unexpected = names_beside(expected, found);
  std::string findings;
  append_finding(findings, "missing", std::move(missing));
  append_finding(findings, "not expected", std::move(unexpected));
  append_finding(findings, "of another type or shape", std::move(different));
  if (findings.empty()) return;
  throw Error(
      ErrorCode::kInvalidFile,
      fmt::format(
          "{}: the tensors do not match config.json ({}); is the folder complete and of one "
          "model?",
          where,
          findings
      )
  );
}

}  // namespace di::checkpoint
