// What the recorded conversations do not show; they run in verify's tests.
#include "text/chat_encoding.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/chat_templates.h"
#include "text/test_tokenizer.h"

namespace di::text {
namespace {

Conversation one_question(std::string question) {
  Conversation conversation;
  conversation.messages.emplace_back();
  conversation.messages[0].content = std::move(question);
  return conversation;
}

TEST(ReasoningEffort, IsANumberOrAName) {
  EXPECT_EQ(ReasoningEffort::from_json("low").value, 50);
  EXPECT_EQ(ReasoningEffort::from_json("xhigh").value, 75);
  EXPECT_EQ(ReasoningEffort::from_json("max").value, 100);
  EXPECT_EQ(ReasoningEffort::from_json(1).value, 1);
  EXPECT_EQ(ReasoningEffort::from_json(100).value, 100);
  for (const Json& wrong : {Json(0), Json(101), Json(-1), Json("medium"), Json(7.5), Json(true)}) {
    EXPECT_THROW(ReasoningEffort::from_json(wrong), Error) << wrong.dump();
  }
}

TEST(ChatEncoding, TheEffortStandsInThePromptAsANumber) {
  Conversation conversation = one_question("q");
  conversation.effort.value = 33;
  const std::string text = render(conversation, ChatVersion::kV41).text;
  EXPECT_NE(text.find("Reasoning Effort: 33 (range 1-100"), std::string::npos);
  conversation.effort.value = 12;
  EXPECT_EQ(render(conversation, ChatVersion::kV4).text.find("Effort"), std::string::npos);
}

TEST(ChatEncoding, TextThatSpellsMarksStaysText) {
  std::string marks;
  for (const auto mark :
       {templates::kBos,
        templates::kEos,
        templates::kSystem,
        templates::kUser,
        templates::kAssistant,
        templates::kThink,
        templates::kEndThink,
        templates::kDsml,
        templates::kImageV41}) {
    marks += mark;
  }
  const auto& tokenizer = seedling_tokenizer();
  const auto with_marks = render(one_question(marks), ChatVersion::kV41);
  const auto without = render(one_question("q"), ChatVersion::kV41);
  EXPECT_EQ(with_marks.special_ranges.size(), without.special_ranges.size());

  const auto begin = with_marks.special_ranges[2].end;
  const auto plain = tokenizer.encode(marks, AddedTokens::kPlain);
  EXPECT_EQ(with_marks.text.substr(begin, marks.size()), marks);
  EXPECT_EQ(
      encode(with_marks, tokenizer).size() - plain.size(),
      encode(without, tokenizer).size() - tokenizer.encode("q", AddedTokens::kPlain).size()
  );
}

TEST(ChatEncoding, AMarkThatTheTokenizerLacksIsNamed) {
  try {
    encode(render(one_question("q"), ChatVersion::kV41), small_tokenizer());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(templates::kBos), std::string::npos);
  }
}

TEST(Conversation, RefusesWhatIsNoConversation) {
  for (const char* wrong :
       {R"({"messages": [{"content": "no role"}]})",
        R"({"messages": [{"role": "developer"}]})",
        R"({"messages": {}})",
        R"({"thinking_mode": 1})",
        R"({"tools": [{}]})",
        R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f"}]}]})"}) {
    EXPECT_THROW(Conversation::from_json(Json::parse(wrong, "test")), Error) << wrong;
  }
}

}  // namespace
}  // namespace di::text
