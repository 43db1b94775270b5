// Stages, markers and cuts; the recorded streams run in verify's tests.
#include "text/output_parser.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace di::text {
namespace {

/// Reasoning, answer and calls as one readable line.
std::string line_of(const std::vector<OutputEvent>& events) {
  std::string line;
  OutputEvent::Kind kind = OutputEvent::Kind::kReasoning;
  for (const OutputEvent& event : events) {
    const bool joins =
        !line.empty() && event.kind == kind && event.kind != OutputEvent::Kind::kToolCall;
    kind = event.kind;
    if (!joins) line.append({'|', "RCTA"[static_cast<int>(kind)], ':'});
    line += event.text;
  }
  return line;
}

std::string read(const OutputParserOptions& options, const std::vector<std::string>& pieces) {
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  const auto add = [&](std::vector<OutputEvent> more) {
    events.insert(events.end(), more.begin(), more.end());
  };
  for (const std::string& piece : pieces)
    add(parser.push(piece));
  add(parser.finish());
  return line_of(events);
}

OutputParserOptions with_tools() {
  OutputParserOptions options;
  options.tool_calls = true;
  return options;
}

const std::string kCall =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"s\" string=\"true\">a\"b</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

TEST(OutputParser, TellsReasoningAnswerAndCallsApart) {
  EXPECT_EQ(
      read(with_tools(), {"\nthink\n\n</think>\n\nanswer" + kCall + "ignored"}),
      "|R:think|C:answer|T:f|A:{\"s\": \"a\\\"b\", \"n\": [1, 2]}"
  );
}

TEST(OutputParser, ReadsTheTagsOfV4AsWell) {
  EXPECT_EQ(
      read(
          with_tools(),
          {"</think><｜DSML｜tool_calls><｜DSML｜invoke name=\"g\"></｜DSML｜invoke>"
           "</｜DSML｜tool_calls>"}
      ),
      "|T:g|A:{}"
  );
}

TEST(OutputParser, WithoutToolsTheirTagsAreText) {
  OutputParserOptions options;
  options.start = OutputStart::kAnswer;
  EXPECT_EQ(read(options, {"<｜DSML｜ calls>"}), "|C:<｜DSML｜ calls>");
}

TEST(OutputParser, TextIsReleasedAsSoonAsItCannotBeAMarker) {
  OutputParser parser(with_tools());
  EXPECT_EQ(line_of(parser.push("ab\n<")), "|R:ab");
  EXPECT_EQ(line_of(parser.push("b")), "|R:\n<b");
  EXPECT_EQ(line_of(parser.push("</thin")), "");
  EXPECT_EQ(line_of(parser.finish()), "|R:</thin");
}

TEST(OutputParser, AStopStringEndsTheAnswerAndNothingElse) {
  OutputParserOptions options;
  options.stop_strings = {"STOP", "TOP!"};
  OutputParser parser(options);
  EXPECT_EQ(line_of(parser.push("a STOP b</think>c ST")), "|R:a STOP b|C:c ");
  EXPECT_EQ(line_of(parser.push("OP! d")), "");
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.stop_string(), "STOP");
  EXPECT_EQ(parser.finish_reason(FinishReason::kLength), FinishReason::kStop);
  EXPECT_EQ(line_of(parser.finish()), "");
}

TEST(OutputParser, TheLongestOfTheStopStringsThatEndTogetherCounts) {
  OutputParserOptions options;
  options.start = OutputStart::kAnswer;
  options.stop_strings = {"P", "STOP", "TOP"};
  OutputParser parser(options);
  EXPECT_EQ(line_of(parser.push("a STO")), "|C:a ");
  EXPECT_EQ(line_of(parser.push("P")), "");
  EXPECT_EQ(parser.stop_string(), "STOP");
}

TEST(OutputParser, AnEmptyStopStringIsRefused) {
  OutputParserOptions options;
  options.stop_strings = {""};
  EXPECT_THROW(OutputParser{options}, Error);
}

TEST(OutputParser, CallsChangeTheFinishReason) {
  OutputParser parser(with_tools());
  parser.push("</think>" + kCall);
  EXPECT_EQ(parser.finish_reason(FinishReason::kStop), FinishReason::kToolCalls);
  EXPECT_EQ(parser.finish_reason(FinishReason::kLength), FinishReason::kLength);
}

TEST(OutputParser, JsonModeBlanksWhatStandsAroundTheValue) {
  OutputParserOptions options;
  options.start = OutputStart::kAnswer;
  options.json_answer = true;
  EXPECT_EQ(read(options, {"Sure: ```json\n{\"a\": 1}\n``` done"}), "|C: {\"a\": 1} ");
  EXPECT_EQ(read(options, {"He", "re: ", "[1]"}), "|C:  [1]");
}

TEST(OutputParser, TheResultDoesNotDependOnTheCuts) {
  static const std::string kParts[] = {
      "a",
      "\n",
      "<",
      "</think>",
      "<think>",
      "<｜DSML｜",
      "</｜DSML｜ calls>",
      "</｜DSML｜",
      "invoke name=\"",
      "\"",
      " ",
      "parameter name=",
      "true\">",
      "false\">",
      "汉",
      "STOP",
      "STO",
      kCall};
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    OutputParserOptions options;
    options.start = static_cast<OutputStart>(random() % 5);
    options.tool_calls = random() % 4 != 0;
    if (random() % 2) options.stop_strings = {"STOP", "OP<", "\n\n"};
    std::string text;
    for (std::size_t n = random() % 25; n > 0; --n)
      text += kParts[random() % std::size(kParts)];
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size(); at += pieces.back().size()) {
      pieces.push_back(text.substr(at, 1 + random() % (random() % 2 ? 2 : 20)));
    }
    ASSERT_EQ(read(options, pieces), read(options, {text})) << Json(text).dump();
  }
}

TEST(OutputParserOptions, FollowTheConversation) {
  Conversation conversation;
  EXPECT_EQ(OutputParserOptions::for_conversation(conversation).start, OutputStart::kReasoning);
  conversation.messages.emplace_back();
  conversation.messages[0].role = Role::kAssistant;
  conversation.messages[0].prefix = true;
  EXPECT_EQ(
      OutputParserOptions::for_conversation(conversation).start, OutputStart::kReasoningContinued
  );
  conversation.messages[0].content = "The";
  EXPECT_EQ(
      OutputParserOptions::for_conversation(conversation).start, OutputStart::kAnswerContinued
  );
  conversation.thinking = false;
  conversation.tools.emplace_back();
  EXPECT_EQ(OutputParserOptions::for_conversation(conversation).start, OutputStart::kAnswer);
  EXPECT_TRUE(OutputParserOptions::for_conversation(conversation).tool_calls);
  conversation.tool_choice = ToolChoice::kRequired;
  EXPECT_EQ(OutputParserOptions::for_conversation(conversation).start, OutputStart::kToolCalls);
}

}  // namespace
}  // namespace di::text
