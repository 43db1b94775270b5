// The map of three tokenizers, against recorded ones.
#include "text/engram_token_map.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "text/test_tokenizer.h"

namespace di::text {
namespace {

/// The tensor `token_map` of a safetensors file.
std::vector<int32_t> recorded_map(const std::string& path) {
  const std::string file = read_text_file(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const std::string_view header = std::string_view(file).substr(8, header_size);
  const Json entry = Json::parse(header, path).at("token_map");
  const auto begin = static_cast<std::size_t>(entry.at("data_offsets").as_array()[0].as_integer());
  std::vector<int32_t> map(static_cast<std::size_t>(entry.at("shape").as_array()[0].as_integer()));
  std::memcpy(map.data(), &file[8 + header_size + begin], map.size() * sizeof(int32_t));
  return map;
}

TEST(EngramTokenMap, EqualsTheRecordedMapOfTheTinyModel) {
  const std::string folder = DI_TESTDATA "/model/tiny/";
  const auto expected = recorded_map(folder + "engram_hash.safetensors");
  const Tokenizer tokenizer = Tokenizer::load(folder + "tokenizer.json");
  const auto map = build_engram_token_map(tokenizer, static_cast<int32_t>(expected.size()));
  EXPECT_EQ(map.compressed, expected);
  EXPECT_EQ(map.classes, 345);
}

TEST(EngramTokenMap, EqualsTheRecordedDigestOfTheDefaultModel) {
  const std::string path = DI_SEEDLING "/golden.json";
  const Json golden = Json::parse(read_text_file(path), path);
  const Json& engram = golden.at("engram");
  const auto map = build_engram_token_map(seedling_tokenizer(), seedling_tokenizer().vocab_size());
  EXPECT_EQ(map.classes, engram.at("compressed_vocab").as_integer());
  EXPECT_EQ(
      sha256_hex(std::as_bytes(std::span(map.compressed))),
      engram.at("token_map_int32le_sha256").as_string()
  );
}

TEST(EngramTokenMap, HasTheOfficialNumberOfClasses) {
  EXPECT_EQ(build_engram_token_map(official_tokenizer(), 129280).classes, 99092);
}

TEST(EngramTokenMap, IdsBeyondTheTokenizerShareOneClass) {
  const auto map = build_engram_token_map(small_tokenizer(), 310);
  EXPECT_EQ(map.compressed[305], map.compressed[309]);
  EXPECT_EQ(map.compressed['a'], map.compressed['A']);
  EXPECT_EQ(map.compressed[' '], map.compressed['\t']);
  EXPECT_NE(map.compressed[' '], map.compressed[305]);
}

}  // namespace
}  // namespace di::text
