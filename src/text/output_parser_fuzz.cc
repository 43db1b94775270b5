// Any output, cut anywhere, under any options: no crash, and the same result as uncut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/output_parser.h"

namespace {

using di::text::OutputEvent;
using di::text::OutputParser;
using di::text::OutputParserOptions;
using di::text::OutputStart;

/// All events, neighbours of one kind joined.
std::string read(const OutputParserOptions& options, std::string_view text, std::size_t piece) {
  OutputParser parser(options);
  std::string joined;
  OutputEvent::Kind kind = OutputEvent::Kind::kToolCall;
  const auto add = [&](const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      if (event.kind != kind || kind == OutputEvent::Kind::kToolCall) {
        joined += static_cast<char>(event.kind);
      }
      kind = event.kind;
      joined += event.text;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece)
    add(parser.push(text.substr(at, piece)));
  add(parser.finish());
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  OutputParserOptions options;
  options.start = static_cast<OutputStart>(data[0] % 5);
  options.tool_calls = (data[0] & 0x40) != 0;
  options.json_answer = (data[0] & 0x80) != 0;
  if ((data[0] & 0x20) != 0) options.stop_strings = {"STOP", "\n<", "aab"};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string whole = read(options, text, text.size() + 1);
  const std::string cut = read(options, text, 1 + data[1] % 16);
  // The number of blanks in JSON mode tells of the cuts.
  if (!options.json_answer) DI_CHECK(whole == cut, "the result depends on the cuts");
  return 0;
}
