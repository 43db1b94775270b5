#include "base/json.h"

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace di {
namespace {

/// The message of the error that parsing `text` gives; empty when it parses.
std::string refusal(const std::string& text, const JsonLimits& limits = {}) {
  try {
    Json::parse(text, "file.json", limits);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
}

TEST(Json, KeepsTheKindOfNumbers) {
  const Json json = Json::parse("[1, -1, 1.0, 18446744073709551615]", "text");
  const Json::Array& items = json.as_array();
  EXPECT_EQ(items[0].as_integer(), 1);
  EXPECT_EQ(items[1].as_integer(), -1);
  EXPECT_STREQ(items[2].kind(), "number");
  EXPECT_EQ(items[2].as_number(), 1.0);
  EXPECT_EQ(items[3].integer_text(), "18446744073709551615");
  EXPECT_THROW(items[3].as_integer(), Error);
  EXPECT_NE(refusal("1e400").find("number overflow"), std::string::npos);
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(Json::parse(R"({"b": 1, "a": 2})", "text").dump(), R"({"b": 1, "a": 2})");
}

TEST(Json, TakesTheLastOfDuplicateKeysAtTheFirstPlaceUnlessToldToRefuse) {
  const std::string text = R"({"a": 1, "b": 2, "a": 3})";
  EXPECT_EQ(Json::parse(text, "text").dump(), R"({"a": 3, "b": 2})");
  JsonLimits strict;
  strict.reject_duplicate_keys = true;
  EXPECT_NE(refusal(text, strict).find("\"a\" stands twice"), std::string::npos);
}

TEST(Json, RefusesHostileDepthWithoutRecursion) {
  const std::string deep(1'000'000, '[');
  EXPECT_NE(refusal(deep).find("deeper than 128"), std::string::npos);
  JsonLimits limits;
  limits.max_depth = 2;
  EXPECT_EQ(refusal("[[1]]", limits), "");
  EXPECT_NE(refusal("[[[1]]]", limits), "");
}

TEST(Json, NamesTheFileAndTheByteWhereTextStopsBeingJson) {
  const std::string message = refusal(R"({"a": nope})");
  EXPECT_EQ(message.find("file.json: not JSON at byte 8: syntax error"), 0u) << message;
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal("1 2"), "");
  EXPECT_NE(refusal("\"\xff\""), "");
}

TEST(Json, WritesWhatPythonWrites) {
  Json json;
  json.set("text", "ä\n\"\\\x01");
  json.set("values", Json::Array{Json(0.1), Json(1.0), Json(true), Json(), Json(int64_t{-7})});
  EXPECT_EQ(
      json.dump(), "{\"text\": \"ä\\n\\\"\\\\\\u0001\", \"values\": [0.1, 1.0, true, null, -7]}"
  );
}

TEST(Json, FindsAndReplacesMembers) {
  Json json = Json::parse(R"({"a": 1})", "text");
  json.set("a", 2).set("b", "x");
  EXPECT_EQ(json.at("a").as_integer(), 2);
  EXPECT_EQ(json.at("b").as_string(), "x");
  EXPECT_EQ(json.find("c"), nullptr);
  EXPECT_THROW(json.at("c"), Error);
  EXPECT_THROW(json.as_array(), Error);
}

}  // namespace
}  // namespace di
