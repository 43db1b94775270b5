// Any stop strings, any text, cut anywhere: no crash, the same result as uncut, and never a part of
// the stop string that ends it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/stop_strings.h"

namespace {

using di::text::StopStrings;

/// What comes out in all, and the stop string.
std::pair<std::string, std::string> read(
    const std::vector<std::string>& stops, std::string_view text, std::size_t piece
) {
  StopStrings stream(stops);
  std::string joined;
  for (std::size_t at = 0; at < text.size(); at += piece)
    joined += stream.push(text.substr(at, piece));
  joined += stream.flush();
  return {joined, stream.matched().value_or("")};
}

}  // namespace

/// Two bytes of sizes, then stop strings that end with a zero byte each, then the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string> stops;
  for (int i = 0; i < data[0] % 8; ++i) {
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos || end == 0) break;
    stops.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  const auto [text, stop] = read(stops, rest, rest.size() + 1);
  DI_CHECK(rest.substr(0, text.size()) == text, "the text is not the beginning of what was read");
  DI_CHECK(
      stop.empty() ? text.size() == rest.size() : rest.substr(text.size(), stop.size()) == stop,
      "the text does not end before the stop string"
  );
  const auto cut = read(stops, rest, 1 + data[1] % 16);
  DI_CHECK(cut.first == text && cut.second == stop, "the result depends on the cuts");
  return 0;
}
