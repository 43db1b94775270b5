// Files that must be refused, each with a message that names the fault.
#include "text/tokenizer_file.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/test_tokenizer.h"

namespace di::text {
namespace {

struct HostileFile {
  const char* fault;  ///< must stand in the message
  std::function<void(Json&)> damage;
};

Json& member(Json& json, std::string_view key) {
  for (auto& [name, value] : json.as_object()) {
    if (name == key) return value;
  }
  throw std::out_of_range(std::string(key));
}

void remove(Json& json, std::string_view key) {
  std::erase_if(json.as_object(), [&](const auto& entry) { return entry.first == key; });
}

Json& vocab(Json& json) {
  return member(member(json, "model"), "vocab");
}
Json& merges(Json& json) {
  return member(member(json, "model"), "merges");
}
Json::Array& stages(Json& json) {
  return member(member(json, "pre_tokenizer"), "pretokenizers").as_array();
}
Json& split(Json& json) {
  return stages(json)[0];
}
Json& added(Json& json) {
  return member(json, "added_tokens").as_array()[0];
}

const std::vector<HostileFile> kHostileFiles = {
    {"\"decoder\" is missing", [](Json& j) { j = Json::Object{}; }},
    {"expected an object", [](Json& j) { member(j, "model").set("vocab", 3); }},
    {"\"merges\" is missing", [](Json& j) { remove(member(j, "model"), "merges"); }},
    {"the id 5 of \"twice\" is taken", [](Json& j) { vocab(j).set("twice", 5); }},
    {"outside 0..", [](Json& j) { vocab(j).set("x1", -1); }},
    {"outside 0..", [](Json& j) { vocab(j).set("x1", int64_t{1} << 40); }},
    {"expected an integer", [](Json& j) { vocab(j).set("x1", 1.5); }},
    {"expected an integer", [](Json& j) { vocab(j).set("x1", UINT64_MAX); }},
    {"empty string", [](Json& j) { vocab(j).set("", 270); }},
    {"no token for the byte 0x20", [](Json& j) { remove(vocab(j), "Ġ"); }},
    {"\"zz\" is not in vocab", [](Json& j) { merges(j).as_array().emplace_back("zz a"); }},
    {"\"ab\" is not in vocab", [](Json& j) { merges(j).as_array().emplace_back("a b"); }},
    {"stands earlier", [](Json& j) { merges(j).as_array().emplace_back("h e"); }},
    {"one space", [](Json& j) { merges(j).as_array().emplace_back("he"); }},
    {"one space", [](Json& j) { merges(j).as_array().emplace_back("h e l"); }},
    {"expected two tokens, found 3",
     [](Json& j) {
       merges(j).as_array().emplace_back(Json::Array{"h", "e", "l"});
     }},
    {"expected an array", [](Json& j) { merges(j).as_array().emplace_back(7); }},
    {"dropout", [](Json& j) { member(j, "model").set("dropout", 0.1); }},
    {"unk_token", [](Json& j) { member(j, "model").set("unk_token", "<unk>"); }},
    {"byte_fallback", [](Json& j) { member(j, "model").set("byte_fallback", true); }},
    {"ignore_merges", [](Json& j) { member(j, "model").set("ignore_merges", true); }},
    {"\"Unigram\"", [](Json& j) { member(j, "model").set("type", "Unigram"); }},
    {"normalizer",
     [](Json& j) {
       j.set("normalizer", Json::Object{{"type", "NFC"}});
     }},
    {"truncation",
     [](Json& j) {
       j.set("truncation", Json::Object{{"max_length", 8}});
     }},
    {"post_processor",
     [](Json& j) {
       j.set("post_processor", Json::Object{{"type", "TemplateProcessing"}});
     }},
    {"decoder",
     [](Json& j) {
       j.set("decoder", Json::Object{{"type", "Metaspace"}});
     }},
    {"behavior", [](Json& j) { split(j).set("behavior", "Removed"); }},
    {"invert", [](Json& j) { split(j).set("invert", true); }},
    {"Regex",
     [](Json& j) {
       split(j).set("pattern", Json::Object{{"String", " "}});
     }},
    {"use_regex", [](Json& j) { stages(j)[1].set("use_regex", true); }},
    {"at least one Split", [](Json& j) { stages(j).clear(); }},
    {"has id 299 here and 256 in vocab",
     [](Json& j) { added(j).set("content", "he").set("id", 299); }},
    {"the id 7 of \"<mark>\" is taken", [](Json& j) { added(j).set("id", 7); }},
    {"its content is empty", [](Json& j) { added(j).set("content", ""); }},
    {"stands twice", [](Json& j) { added(j).set("content", "<late>"); }},
    {"lstrip", [](Json& j) { added(j).set("lstrip", true); }},
    {"expected a boolean", [](Json& j) { added(j).set("special", "yes"); }},
};

std::string error_of(const std::string& text) {
  try {
    parse_tokenizer_file(text, "hostile.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerFile, RefusesEveryHostileFileByName) {
  for (const HostileFile& hostile : kHostileFiles) {
    Json json = small_tokenizer_json();
    hostile.damage(json);
    const std::string message = error_of(json.dump());
    EXPECT_EQ(message.rfind("hostile.json: ", 0), 0u) << message;
    EXPECT_NE(message.find(hostile.fault), std::string::npos) << hostile.fault << ": " << message;
  }
}

TEST(TokenizerFile, RefusesTextThatIsNoSoundJson) {
  const std::string good = small_tokenizer_json().dump();
  EXPECT_NE(error_of(good.substr(0, good.size() / 2)).find("byte"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '[')).find("nested"), std::string::npos);
  EXPECT_NE(error_of("{\"model\": \"\xFF\"}").find("hostile.json"), std::string::npos);
  std::string twice = good;
  twice.replace(twice.find("\"he\": 256"), 9, "\"ll\": 256");
  EXPECT_NE(error_of(twice).find("stands twice"), std::string::npos);
}

TEST(TokenizerFile, ReadsBothSpellingsOfMerges) {
  const TokenizerFile file = parse_tokenizer_file(small_tokenizer_json().dump(), "small");
  ASSERT_EQ(file.merges.size(), 4u);
  EXPECT_EQ(file.merges[0].result, 256);
  EXPECT_EQ(file.merges[2].left, 256);
  EXPECT_EQ(file.merges[2].right, 257);
  EXPECT_EQ(file.merges[2].result, 258);
  EXPECT_EQ(file.tokens.at(259), " <");
  EXPECT_EQ(file.tokens.at(270), std::nullopt);
}

}  // namespace
}  // namespace di::text
