// Reading tokenizer.json; see tokenizer_file.h.
#include "text/tokenizer_file.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "text/byte_level.h"

namespace di::text {
namespace {

/// Ids beyond this are taken for damage; it also bounds the memory of the id table.
constexpr int64_t kMaxId = (int64_t{1} << 22) - 1;

using Vocabulary = std::unordered_map<std::string_view, int32_t>;

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidFile, message);
}

[[noreturn]] void unsupported(std::string_view key, const Json& value, std::string_view supported) {
  std::string found = value.dump();
  if (found.size() > 80) found = value.kind();
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("{} is {}; this build follows only {}", key, found, supported)
  );
}

/// Runs `read` and puts `place` before the message of any error in it.
template <typename Read>
auto in_place(std::string_view place, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", place, error.what()));
  }
}

const Json& member_or_null(const Json& object, std::string_view key) {
  static const Json kNull;
  const Json* member = object.find(key);
  return member == nullptr ? kNull : *member;
}

/// Whether an option is missing or holds its neutral value.
bool is_off(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("");
}

void require_off(const Json& object, std::string_view key) {
  const Json& value = member_or_null(object, key);
  if (!is_off(value)) unsupported(key, value, "files without it");
}

void require_type(const Json& object, std::string_view key, std::string_view type) {
  const Json& value = object.at(key);
  if (value != Json(type)) unsupported(key, value, fmt::format("\"{}\"", type));
}

void check_top_level(const Json& file) {
  require_off(file, "truncation");
  require_off(file, "padding");
  const Json& normalizer = member_or_null(file, "normalizer");
  if (!normalizer.is_null()) {
    in_place("normalizer", [&] {
      require_type(normalizer, "type", "Sequence");
      const Json& parts = normalizer.at("normalizers");
      if (!parts.as_array().empty()) unsupported("normalizers", parts, "an empty list");
    });
  }
  const Json& post_processor = member_or_null(file, "post_processor");
  if (!post_processor.is_null()) {
    in_place("post_processor", [&] { require_type(post_processor, "type", "ByteLevel"); });
  }
  in_place("decoder", [&] { require_type(file.at("decoder"), "type", "ByteLevel"); });
}

std::string read_split(const Json& split) {
  require_type(split, "type", "Split");
  require_type(split, "behavior", "Isolated");
  require_off(split, "invert");
  return split.at("pattern").at("Regex").as_string();
}

std::vector<std::string> read_splits(const Json& pre_tokenizer) {
  require_type(pre_tokenizer, "type", "Sequence");
  const auto& stages = pre_tokenizer.at("pretokenizers").as_array();
  if (stages.size() < 2) invalid("expected at least one Split and then a ByteLevel stage");
  const Json& last = stages.back();
  require_type(last, "type", "ByteLevel");
  require_off(last, "add_prefix_space");
  if (last.at("use_regex").as_bool()) unsupported("use_regex", Json(true), "false");

  std::vector<std::string> patterns;
  for (std::size_t i = 0; i + 1 < stages.size(); ++i)
    patterns.push_back(read_split(stages[i]));
  return patterns;
}

void check_model_options(const Json& model) {
  require_type(model, "type", "BPE");
  for (const char* key :
       {"dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges"}) {
    require_off(model, key);
  }
}

int32_t checked_id(const Json& value, std::string_view token) {
  const int64_t id = value.as_integer();
  if (id < 0 || id > kMaxId) {
    invalid(fmt::format("the id {} of \"{}\" is outside 0..{}", id, token, kMaxId));
  }
  return static_cast<int32_t>(id);
}

/// Puts a token's bytes into the id table.
void place_token(TokenizerFile& file, int32_t id, std::string_view spelling, std::string bytes) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= file.tokens.size()) file.tokens.resize(index + 1);
  if (file.tokens[index]) invalid(fmt::format("the id {} of \"{}\" is taken", id, spelling));
  file.tokens[index] = std::move(bytes);
}

Vocabulary read_vocabulary(const Json& vocab, TokenizerFile& file) {
  const auto& entries = vocab.as_object();
  Vocabulary ids;
  ids.reserve(entries.size());
  for (const auto& [spelling, value] : entries) {
    if (spelling.empty()) invalid("a token is spelled by the empty string");
    const int32_t id = checked_id(value, spelling);
    place_token(file, id, spelling, byte_level_bytes(spelling).value_or(spelling));
    ids.emplace(spelling, id);
  }
  return ids;
}

void find_byte_tokens(const Vocabulary& ids, TokenizerFile& file) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = byte_spelling(static_cast<uint8_t>(byte));
    const auto found = ids.find(spelling);
    if (found == ids.end()) {
      invalid(fmt::format("no token for the byte 0x{:02x}, spelled \"{}\"", byte, spelling));
    }
    file.byte_tokens[static_cast<std::size_t>(byte)] = found->second;
  }
}

/// The two halves of a merge, in either spelling: "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> halves_of(const Json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const auto space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      invalid(fmt::format("expected two tokens with one space between them, found \"{}\"", text));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const auto& pair = merge.as_array();
  if (pair.size() != 2) invalid(fmt::format("expected two tokens, found {}", pair.size()));
  return {pair[0].as_string(), pair[1].as_string()};
}

int32_t known_token(const Vocabulary& ids, std::string_view token) {
  const auto found = ids.find(token);
  if (found == ids.end()) invalid(fmt::format("the token \"{}\" is not in vocab", token));
  return found->second;
}

std::vector<Merge> read_merges(const Json& list, const Vocabulary& ids) {
  const auto& entries = list.as_array();
  if (entries.size() > Bpe::kMaxMerges) {
    invalid(fmt::format("{} merges; at most {} are possible", entries.size(), Bpe::kMaxMerges));
  }
  std::vector<Merge> merges;
  std::unordered_set<uint64_t> seen;
  merges.reserve(entries.size());
  seen.reserve(entries.size());
  for (std::size_t rank = 0; rank < entries.size(); ++rank) {
    in_place(fmt::format("merge {}", rank), [&] {
      const auto [left, right] = halves_of(entries[rank]);
      const Merge merge = {
          known_token(ids, left),
          known_token(ids, right),
          known_token(ids, std::string(left).append(right))};
      merges.push_back(merge);
      const auto pair =
          uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right);
      if (!seen.insert(pair).second) invalid("the same pair stands earlier in the list");
    });
  }
  return merges;
}

AddedToken read_added_token(const Json& entry) {
  AddedToken token;
  token.content = entry.at("content").as_string();
  if (token.content.empty()) invalid("its content is empty");
  token.id = checked_id(entry.at("id"), token.content);
  token.special = entry.at("special").as_bool();
  token.normalized = entry.at("normalized").as_bool();
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    require_off(entry, key);
  return token;
}

void read_added_tokens(const Json& list, const Vocabulary& ids, TokenizerFile& file) {
  const auto& entries = list.as_array();
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    in_place(fmt::format("entry {}", i), [&] {
      AddedToken token = read_added_token(entries[i]);
      if (!seen.insert(token.content).second) {
        invalid(fmt::format("\"{}\" stands twice in the list", token.content));
      }
      if (const auto found = ids.find(token.content); found == ids.end()) {
        place_token(file, token.id, token.content, token.content);
      } else if (found->second != token.id) {
        invalid(fmt::format(
            "\"{}\" has id {} here and {} in vocab", token.content, token.id, found->second
        ));
      } else {
        file.tokens[static_cast<std::size_t>(token.id)] = token.content;
      }
      file.added_tokens.push_back(std::move(token));
    });
  }
}

TokenizerFile read_file(const Json& json) {
  TokenizerFile file;
  check_top_level(json);
  file.split_patterns =
      in_place("pre_tokenizer", [&] { return read_splits(json.at("pre_tokenizer")); });
  const Json& model = json.at("model");
  in_place("model", [&] { check_model_options(model); });
  const Vocabulary ids = in_place("model.vocab", [&] {
    Vocabulary vocabulary = read_vocabulary(model.at("vocab"), file);
    find_byte_tokens(vocabulary, file);
    return vocabulary;
  });
  file.merges = in_place("model.merges", [&] { return read_merges(model.at("merges"), ids); });
  in_place("added_tokens", [&] { read_added_tokens(json.at("added_tokens"), ids, file); });
  return file;
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view json, std::string_view where) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.reject_duplicate_keys = true;
  const Json parsed = Json::parse(json, where, limits);
  return in_place(where, [&] { return read_file(parsed); });
}

}  // namespace di::text
