// Feeding recorded chunks to the output parser; see stream_cases.h.
#include "verify/stream_cases.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "verify/transcript.h"

namespace di::verify {
namespace {

using text::FinishReason;
using text::OutputParser;
using text::OutputParserOptions;

/// What a backend sent: text in pieces and the reason of its end.
struct Recording {
  std::vector<std::string> pieces;
  std::optional<FinishReason> reason;
};

FinishReason reason_from(const Json& chunk) {
  const std::string& reason = chunk.at("reason").as_string();
  if (reason == "length") return FinishReason::kLength;
  if (reason == "content_filter") return FinishReason::kContentFilter;
  return FinishReason::kStop;
}

Recording recording_of(const Json& chunks, const text::Tokenizer& tokenizer) {
  Recording recording;
  text::Detokenizer detokenizer(tokenizer);
  for (const Json& chunk : chunks.as_array()) {
    const std::string& kind = chunk.at("kind").as_string();
    if (kind == "text") {
      recording.pieces.push_back(chunk.at("text").as_string());
    } else if (kind == "tokens") {
      std::string piece;
      for (const int32_t id : ids_of(chunk.at("ids")))
        piece += detokenizer.push(id);
      recording.pieces.push_back(piece);
    } else if (kind == "finish") {
      recording.reason = reason_from(chunk);
      break;
    }
  }
  return recording;
}

Transcript transcript_of(OutputParser& parser, const std::vector<std::string>& pieces) {
  Transcript transcript;
  for (const std::string& piece : pieces)
    append(transcript, parser.push(piece));
  append(transcript, parser.finish());
  return transcript;
}

/// Cuts `text` into pieces of 1 to `longest` bytes.
std::vector<std::string> random_pieces(std::string_view text, std::size_t longest) {
  std::mt19937 random(static_cast<uint32_t>(text.size()));
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const std::size_t size = std::min(text.size(), 1 + random() % longest);
    pieces.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

/// The same text cut in other ways must read the same.
CaseOutcome check_other_cuts(
    const Recording& recording, const Transcript& expected, const OutputParserOptions& options
) {
  std::string whole;
  for (const std::string& piece : recording.pieces)
    whole += piece;
  for (const std::size_t longest :
       {std::max<std::size_t>(whole.size(), 1) * 1000,
        std::size_t{1},
        std::size_t{3},
        std::size_t{12}}) {
    OutputParser parser(options);
    const auto pieces =
        longest > whole.size() ? std::vector<std::string>{whole} : random_pieces(whole, longest);
    const auto outcome =
        compare("cut anew", expected.to_json(), transcript_of(parser, pieces).to_json());
    if (outcome.kind != CaseOutcome::Kind::kPassed) return outcome;
  }
  return CaseOutcome::passed();
}

}  // namespace

CaseOutcome run_stream_case(const Json& test, const text::Tokenizer& tokenizer) {
  const Protocol protocol(test.at("protocol").as_string(), test.at("request"));
  const OutputParserOptions options = protocol.parser_options();
  const Recording recording = recording_of(test.at("chunks"), tokenizer);
  OutputParser parser(options);
  const Transcript found = transcript_of(parser, recording.pieces);
  const Json& expected = test.at("expect");
  const Json& response = expected.at("final");
  const bool chunk_dependent = test.find("chunk_dependent") != nullptr;

  CaseOutcome outcome = first_failure(
      [&] {
        return compare(
            "final",
            protocol.read_response(response).to_json(),
            protocol.shown_whole(found).to_json()
        );
      },
      [&] {
        return compare(
            "deltas",
            protocol.read_events(expected.at("events")).to_json(),
            protocol.shown_streamed(found).to_json()
        );
      },
      [&] {
        return compare(
            "finish",
            protocol.read_finish(response),
            protocol.shown_finish(parser, recording.reason)
        );
      },
      [&] {
        if (chunk_dependent) return CaseOutcome::passed();
        return check_other_cuts(recording, found, options);
      }
  );
  if (chunk_dependent && outcome.kind == CaseOutcome::Kind::kFailed) {
    return CaseOutcome::skipped("the reference's result depends on its chunking");
  }
  return outcome;
}

}  // namespace di::verify
