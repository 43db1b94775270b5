// Ends a stream of text at the first of several stop strings.
//
// For text as it comes from the model; OutputParser looks for stop strings itself, as they count in
// answers alone. A caller with a least length pushes nothing here before it is reached.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/marker_matcher.h"

namespace di::text {

/// Holds back what may be the beginning of a stop string. Compares bytes; what comes out, joined,
/// does not depend on how the text was cut into pieces.
///
/// The stop string that is complete first, in the order of the text, counts; of several that end
/// with the same byte the longest, so that nothing of it comes out.
class StopStrings {
 public:
  /// `strings` may be empty. Throws Error{kInvalidArgument} when one of them is.
  explicit StopStrings(const std::vector<std::string>& strings);

  /// Reads more text and returns what is settled of it: all up to the stop string, or up to the
  /// longest end that may still become one. Text after a match is dropped.
  std::string push(std::string_view piece);

  /// Ends the text and returns what was held back.
  std::string flush();

  /// The stop string that was found.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  void read(char byte);

  std::vector<MarkerMatcher> matchers_;
  std::string pending_;  ///< text that has not come out
  std::optional<std::string> matched_;
};

}  // namespace di::text
