// A tokenizer.json small enough to read, for tests that change one thing in it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace di::text {

/// Ids 0..255 are the bytes, 256 "he", 257 "ll", 258 "hell", 259 " <", 300 <mark>, 301 <late> (not
/// special, normalized).
inline Json small_tokenizer_json() {
  Json vocab{Json::Object{}};
  for (int byte = 0; byte < 256; ++byte)
    vocab.set(byte_spelling(static_cast<uint8_t>(byte)), byte);
  vocab.set("he", 256).set("ll", 257).set("hell", 258).set("Ġ<", 259);
  const auto added = [](const char* content, int id, bool plain) {
    return Json(Json::Object{
        {"id", id},
        {"content", content},
        {"single_word", false},
        {"lstrip", false},
        {"rstrip", false},
        {"normalized", plain},
        {"special", !plain}});
  };
  const Json split(Json::Object{
      {"type", "Split"},
      {"pattern", Json::Object{{"Regex", "\\p{N}{1,3}|\\s*\\p{L}+|\\s+(?!\\S)"}}},
      {"behavior", "Isolated"},
      {"invert", false}});
  const Json byte_level(Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return Json::Object{
      {"version", "1.0"},
      {"added_tokens", Json::Array{added("<mark>", 300, false), added("<late>", 301, true)}},
      {"normalizer", Json()},
      {"pre_tokenizer",
       Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{split, byte_level}}}},
      {"post_processor", Json()},
      {"decoder", Json::Object{{"type", "ByteLevel"}}},
      {"model",
       Json::Object{
           {"type", "BPE"},
           {"vocab", vocab},
           {"merges", Json::Array{"h e", "l l", Json::Array{"he", "ll"}, "Ġ <"}}}}};
}

inline Tokenizer small_tokenizer() {
  return Tokenizer(parse_tokenizer_file(small_tokenizer_json().dump(), "small"), "small");
}

/// The tokenizer of the default model; 4,224 ids.
inline const Tokenizer& seedling_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(DI_SEEDLING "/tokenizer.json");
  return tokenizer;
}

/// The official tokenizer; 129,280 ids.
inline const Tokenizer& official_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(DI_TESTDATA "/text/tokenizer/tokenizer.json");
  return tokenizer;
}

}  // namespace di::text
