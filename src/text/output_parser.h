// What a model writes, as a stream: reasoning, answer and tool calls.
//
// The parser is a machine of stages. Each stage sends its text to one place and ends at the first
// of its markers that is complete; text that may still turn out to be a marker waits. What comes
// out, joined, does not depend on how the text was cut into pushes (blanks of JSON mode aside).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/conversation.h"
#include "text/marker_matcher.h"

namespace di::text {

/// A piece of output. Neighbouring pieces of one kind (and call) belong together.
struct OutputEvent {
  enum class Kind {
    kReasoning,  ///< text of the reasoning
    kContent,    ///< text of the answer
    kToolCall,   ///< a new call; text is the tool's name
    kArguments,  ///< arguments of the latest call, a JSON text unless the model erred
  };
  Kind kind;
  std::string text;

  bool operator==(const OutputEvent&) const = default;
};

/// Why an output ended.
enum class FinishReason { kStop, kLength, kContentFilter, kToolCalls };

/// Where in the output the model begins; the prompt decides.
enum class OutputStart {
  kReasoning,           ///< after <think>
  kReasoningContinued,  ///< amid reasoning that the prompt began
  kAnswer,              ///< after </think>
  kAnswerContinued,     ///< amid an answer that the prompt began
  kToolCalls,           ///< after the line that opens a block of calls
};

/// How to read an output.
struct OutputParserOptions {
  OutputStart start = OutputStart::kReasoning;
  bool tool_calls = false;                ///< tools are declared: their calls are looked for
  bool json_answer = false;               ///< JSON mode: text around the JSON value becomes blanks
  std::vector<std::string> stop_strings;  ///< none empty; they end answers, not reasoning or
                                          ///< calls. Which one counts: as in StopStrings

  /// The options that fit the prompt of `conversation`; without stop strings.
  static OutputParserOptions for_conversation(const Conversation& conversation);
};

/// Reads one output, a piece at a time. Feed it text without BOS, EOS and padding.
class OutputParser {
 public:
  /// Throws Error{kInvalidArgument} for an empty stop string.
  explicit OutputParser(const OutputParserOptions& options);

  /// Reads more text and returns what it settles. In JSON mode every push that holds text outside
  /// of the JSON value yields one blank for it, a sign of life.
  std::vector<OutputEvent> push(std::string_view text);

  /// Ends the output and returns what was held back.
  std::vector<OutputEvent> finish();

  /// Whether nothing further will come out: a stop string was found, or a block of calls is closed.
  bool done() const { return stage_ == Stage::kDone; }

  /// The stop string that ended the output.
  const std::optional<std::string>& stop_string() const { return stop_string_; }

  /// The reason to report when the model's own reason was `reason`.
  FinishReason finish_reason(FinishReason reason) const {
    if (stop_string_) return FinishReason::kStop;
    return reason == FinishReason::kStop && calls_ > 0 ? FinishReason::kToolCalls : reason;
  }

 private:
  enum class Stage : uint8_t {
    kReasoning,
    kAnswer,
    kBeforeJson,
    kJson,
    kAfterJson,
    kCalls,
    kCallName,
    kArguments,
    kParameterName,
    kParameterType,
    kStringValue,
    kRawValue,
    kDone,
  };

  /// What else happens when a marker is complete.
  enum class Effect : uint8_t {
    kNone,
    kKeepMarker,      ///< the marker is text of the next stage
    kStop,            ///< it was a stop string
    kAnnounceCall,    ///< the tool's name is known
    kStartParameter,  ///< arguments go on with { or a comma
    kEndName,         ///< ... with a colon
    kQuote,           ///< ... with a quotation mark
    kEndArguments,    ///< ... with }
  };

  struct Marker {
    MarkerMatcher matcher;
    Stage next;
    Effect effect = Effect::kNone;
    bool leading_only = false;  ///< counts before any other byte of the stage
  };

  void build_stage(Stage stage);
  void add_marker(
      std::string text, Stage next, Effect effect = Effect::kNone, bool eats_newlines = false
  );
  void add_answer_markers(Stage stage);
  void add_stop_strings();
  void enter(Stage stage, bool leading);
  void read(char byte);
  void complete(std::size_t index);
  void apply(Effect effect, const std::string& marker);
  void release(std::size_t size);
  void emit(OutputEvent::Kind kind, std::string_view text);

  OutputParserOptions options_;
  Stage stage_ = Stage::kReasoning;
  std::vector<Marker> markers_;  ///< of the stage; of two that end together the first counts
  bool leading_ = false;         ///< no byte but skipped newlines has come in this stage

  std::string pending_;                    ///< text of the stage that is not settled
  std::vector<std::size_t> piece_starts_;  ///< where in it pushes began; its start is one

  std::string call_name_;
  int calls_ = 0;
  bool has_parameters_ = false;  ///< the latest call
  std::optional<std::string> stop_string_;
  std::vector<OutputEvent> events_;  ///< of the push that is under way
};

}  // namespace di::text
