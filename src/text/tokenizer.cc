// The steps of encoding in order: repair UTF-8, take out added tokens, cut into words, merge.
#include "text/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/utf8.h"

namespace di::text {
namespace {

// Short words come back often, so their earlier tokens are copied; longer ones seldom do.
constexpr std::size_t kMaxKnownWordBytes = 16;
constexpr std::size_t kMaxKnownWords = 1 << 16;

}  // namespace

/// Working memory of one encode() call.
struct Tokenizer::Scratch {
  /// The place of tokens in the output.
  struct Place {
    std::size_t begin;
    std::size_t count;
  };

  Regex::Scratch regex;
  Bpe::Scratch bpe;
  std::vector<std::string_view> words;
  std::unordered_map<std::string_view, Place> known;  ///< where a word was encoded before
};

Tokenizer Tokenizer::load(const std::string& path) {
  return Tokenizer(parse_tokenizer_file(read_text_file(path), path), path);
}

Tokenizer::Tokenizer(TokenizerFile file, std::string_view where)
    : special_(file.tokens.size()),
      added_stages_(2),
      pretokenizer_(file.split_patterns, where),
      bpe_(file.byte_tokens, file.merges) {
  tokens_.reserve(file.tokens.size());
  for (auto& bytes : file.tokens)
    tokens_.push_back(std::move(bytes).value_or(""));
  for (const AddedToken& token : file.added_tokens) {
    special_[static_cast<std::size_t>(token.id)] = token.special;
    added_ids_.emplace(token.content, token.id);
    added_stages_[token.normalized ? 1 : 0].add(token.content, token.id);
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, AddedTokens added) const {
  if (text.size() >= std::size_t{1} << 31) {
    throw Error(ErrorCode::kInvalidArgument, "a text of 2 GiB or more cannot be encoded at once");
  }
  std::string repaired;
  if (valid_utf8_prefix(text) != text.size()) {
    repaired = repaired_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  Scratch scratch;
  if (added == AddedTokens::kRecognised) {
    encode_recognised(0, text, scratch, ids);
  } else {
    encode_plain(text, scratch, ids);
  }
  return ids;
}

void Tokenizer::encode_recognised(
    std::size_t stage, std::string_view text, Scratch& scratch, std::vector<int32_t>& ids
) const {
  if (stage == added_stages_.size()) return encode_plain(text, scratch, ids);
  std::size_t done = 0;
  while (const auto match = added_stages_[stage].find(text, done)) {
    encode_recognised(stage + 1, text.substr(done, match->begin - done), scratch, ids);
    ids.push_back(match->id);
    done = match->end;
  }
  encode_recognised(stage + 1, text.substr(done), scratch, ids);
}

void Tokenizer::encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids)
    const {
  scratch.words.clear();
  pretokenizer_.split(text, scratch.regex, scratch.words);
  for (const std::string_view word : scratch.words) {
    if (word.size() > kMaxKnownWordBytes) {
      bpe_.encode(word, scratch.bpe, ids);
    } else if (const auto known = scratch.known.find(word); known != scratch.known.end()) {
      const auto [begin, count] = known->second;
      for (std::size_t i = begin; i < begin + count; ++i)
        ids.push_back(ids[i]);
    } else {
      const std::size_t begin = ids.size();
      bpe_.encode(word, scratch.bpe, ids);
      if (scratch.known.size() < kMaxKnownWords) {
        scratch.known.emplace(word, Scratch::Place{begin, ids.size() - begin});
      }
    }
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids)
    bytes += token_bytes(id);
  return repaired_utf8(bytes);
}

std::string Tokenizer::decode_skip_special(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!is_special(id)) bytes += token_bytes(id);
  }
  return repaired_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tokens_[static_cast<std::size_t>(id)];
}

std::optional<int32_t> Tokenizer::id_of(std::string_view content) const {
  const auto found = added_ids_.find(std::string(content));
  if (found == added_ids_.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<std::size_t>(id)];
}

}  // namespace di::text
