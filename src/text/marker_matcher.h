// Finds one marker in a stream of bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace di::text {

/// A Knuth-Morris-Pratt automaton for one marker. With `eats_newlines`, the newlines directly
/// before the marker are part of it.
class MarkerMatcher {
 public:
  /// `marker` is not empty; one that eats newlines must not hold any.
  MarkerMatcher(std::string marker, bool eats_newlines);

  /// Reads one byte; true when it completes the marker. Then reset() before the next byte.
  bool push(char byte);

  /// How many of the last bytes the marker covers or may still cover.
  std::size_t held() const { return newlines_ + matched_; }

  /// Forgets all bytes.
  void reset() { newlines_ = matched_ = 0; }

  const std::string& marker() const { return marker_; }

 private:
  std::string marker_;
  bool eats_newlines_;
  std::vector<std::size_t> fallback_;  ///< [n]: the next shorter match when n bytes match
  std::size_t newlines_ = 0;           ///< directly before the matched bytes
  std::size_t matched_ = 0;
};

}  // namespace di::text
