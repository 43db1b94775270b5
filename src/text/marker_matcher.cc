// The automaton; see marker_matcher.h.
#include "text/marker_matcher.h"

#include <utility>

namespace di::text {

MarkerMatcher::MarkerMatcher(std::string marker, bool eats_newlines)
    : marker_(std::move(marker)), eats_newlines_(eats_newlines), fallback_(marker_.size() + 1) {
  for (std::size_t n = 2, shorter = 0; n <= marker_.size(); ++n) {
    while (shorter > 0 && marker_[shorter] != marker_[n - 1])
      shorter = fallback_[shorter];
    if (marker_[shorter] == marker_[n - 1]) ++shorter;
    fallback_[n] = shorter;
  }
}

bool MarkerMatcher::push(char byte) {
  while (matched_ > 0 && marker_[matched_] != byte) {
    matched_ = fallback_[matched_];
    newlines_ = 0;
  }
  if (marker_[matched_] == byte) {
    ++matched_;
  } else if (eats_newlines_ && byte == '\n') {
    ++newlines_;
  } else {
    newlines_ = 0;
  }
  return matched_ == marker_.size();
}

}  // namespace di::text
