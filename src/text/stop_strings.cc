// One automaton for each stop string, side by side; see stop_strings.h.
#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace di::text {

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  for (const std::string& string : strings) {
    if (string.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "a stop string must not be empty");
    }
    matchers_.emplace_back(string, false);
  }
}

std::string StopStrings::push(std::string_view piece) {
  for (const char byte : piece) {
    if (matched_) break;
    read(byte);
  }
  if (matched_) return std::exchange(pending_, {});
  std::size_t held = 0;
  for (const MarkerMatcher& matcher : matchers_)
    held = std::max(held, matcher.held());
  std::string settled = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, settled.size());
  return settled;
}

std::string StopStrings::flush() {
  return std::exchange(pending_, {});
}

/// Reads one byte; a match cuts the stop string off the pending text.
void StopStrings::read(char byte) {
  pending_ += byte;
  for (MarkerMatcher& matcher : matchers_) {
    if (!matcher.push(byte)) continue;
    if (!matched_ || matched_->size() < matcher.marker().size()) matched_ = matcher.marker();
  }
  if (matched_) pending_.resize(pending_.size() - matched_->size());
}

}  // namespace di::text
