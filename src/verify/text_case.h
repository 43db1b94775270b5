// What running one text case gives, shared by the kinds of text cases.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace di::verify {

/// The result of one case: as expected, different, or not run.
struct CaseOutcome {
  enum class Kind { kPassed, kFailed, kSkipped };
  Kind kind = Kind::kPassed;
  std::string expected;  ///< or why it was skipped
  std::string found;

  static CaseOutcome passed() { return {}; }
  static CaseOutcome failed(std::string expected, std::string found) {
    return {Kind::kFailed, std::move(expected), std::move(found)};
  }
  static CaseOutcome skipped(std::string why) { return {Kind::kSkipped, std::move(why), {}}; }
};

/// Passed when the values are equal; `what` names them otherwise.
CaseOutcome compare(const std::string& what, const Json& expected, const Json& found);

/// Runs checks in order until one does not pass.
template <typename... Checks>
CaseOutcome first_failure(Checks... checks) {
  CaseOutcome outcome;
  ((outcome.kind == CaseOutcome::Kind::kPassed ? void(outcome = checks()) : void()), ...);
  return outcome;
}

/// Token ids between JSON and vectors.
std::vector<int32_t> ids_of(const Json& list);
Json json_of(std::span<const int32_t> ids);

}  // namespace di::verify
