#include "engine/record_tokens.h"

#include <bit>
#include <charconv>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"

namespace di::engine {
namespace {

std::string bits_of(float value) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
}

uint32_t word_at(std::string_view hex, std::size_t index) {
  uint32_t word = 0;
  const char* begin = hex.data() + index * 8;
  const auto [end, error] = std::from_chars(begin, begin + 8, word, 16);
  if (error != std::errc() || end != begin + 8) {
    throw Error(ErrorCode::kInvalidFile, "expected groups of 8 hexadecimal digits");
  }
  return word;
}

std::size_t num_words(const std::string& hex) {
  if (hex.size() % 8 != 0) {
    throw Error(ErrorCode::kInvalidFile, "expected groups of 8 hexadecimal digits");
  }
  return hex.size() / 8;
}

std::string top_bits(const TokenOutput& token) {
  std::string hex;
  for (const sampling::TokenLogprob& entry : token.top) {
    hex += fmt::format("{:08x}", static_cast<uint32_t>(entry.token));
    hex += bits_of(entry.logprob);
  }
  return hex;
}

std::vector<sampling::TokenLogprob> top_from(const std::string& hex) {
  const std::size_t words = num_words(hex);
  if (words % 2 != 0) {
    throw Error(ErrorCode::kInvalidFile, "expected pairs of an id and a logprob");
  }
  std::vector<sampling::TokenLogprob> top;
  for (std::size_t i = 0; i < words; i += 2) {
    const auto token = static_cast<int32_t>(word_at(hex, i));
    top.push_back({token, std::bit_cast<float>(word_at(hex, i + 1))});
  }
  return top;
}

}  // namespace

int32_t token_of(const Json& json) {
  const int64_t token = json.as_integer();
  if (token < 0 || token > INT32_MAX) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("{} is no token id", token));
  }
  return static_cast<int32_t>(token);
}

Json tokens_json(const std::vector<TokenOutput>& tokens) {
  Json::Array ids;
  Json::Array tops;
  std::string logprobs;
  bool any_logprob = false;
  bool any_top = false;
  for (const TokenOutput& token : tokens) {
    ids.emplace_back(int64_t{token.token});
    logprobs += bits_of(token.logprob);
    tops.emplace_back(top_bits(token));
    any_logprob = any_logprob || std::bit_cast<uint32_t>(token.logprob) != 0;
    any_top = any_top || !token.top.empty();
  }
  Json::Object object{{"ids", std::move(ids)}};
  if (any_logprob) object.emplace_back("logprobs", std::move(logprobs));
  if (any_top) object.emplace_back("top", std::move(tops));
  return object;
}

std::vector<TokenOutput> tokens_from(const Json& json) {
  std::vector<TokenOutput> tokens;
  for (const Json& id : json.at("ids").as_array())
    tokens.push_back({token_of(id)});
  if (const Json* logprobs = json.find("logprobs")) {
    const std::string& hex = logprobs->as_string();
    if (num_words(hex) != tokens.size()) {
      throw Error(ErrorCode::kInvalidFile, "as many logprobs as ids are expected");
    }
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i].logprob = std::bit_cast<float>(word_at(hex, i));
  }
  if (const Json* tops = json.find("top")) {
    const Json::Array& entries = tops->as_array();
    if (entries.size() != tokens.size()) {
      throw Error(ErrorCode::kInvalidFile, "as many entries of top as ids are expected");
    }
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i].top = top_from(entries[i].as_string());
  }
  return tokens;
}

std::string hash_of(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

std::string hash_of(const std::vector<TokenOutput>& tokens) {
  return hash_of(tokens_json(tokens).dump());
}

std::string hash_of(const std::vector<int32_t>& tokens) {
  return sha256_hex(std::as_bytes(std::span(tokens)));
}

}  // namespace di::engine
