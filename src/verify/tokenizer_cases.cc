// Encoding, decoding and incremental decoding; see tokenizer_cases.h.
#include "verify/tokenizer_cases.h"

#include <bit>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "text/detokenizer.h"

namespace di::verify {
namespace {

using text::AddedTokens;
using text::Tokenizer;

static_assert(std::endian::native == std::endian::little, "digests are of little-endian ids");

/// The member called `key`, or else the one called `instead`.
const Json& either(const Json& test, std::string_view key, std::string_view instead) {
  const Json* member = test.find(key);
  return member == nullptr ? test.at(instead) : *member;
}

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 2 <= hex.size(); i += 2) {
    unsigned value = 0;
    const auto parsed = std::from_chars(&hex[i], &hex[i] + 2, value, 16);
    if (parsed.ptr != &hex[i] + 2) throw Error(ErrorCode::kInvalidFile, "bytes_hex is not hex");
    bytes += static_cast<char>(value);
  }
  return bytes;
}

CaseOutcome check_decoding(const Json& test, const Tokenizer& tokenizer) {
  const auto ids = ids_of(test.at("ids"));
  const std::string text = tokenizer.decode(ids);
  const Json& expected = either(test, "decoded", test.find("text") ? "text" : "replaced_text");
  return first_failure(
      [&] { return compare("decoded", expected, text); },
      [&] {
        const Json* skipping = test.find("decoded_skip_special");
        if (skipping == nullptr) return CaseOutcome::passed();
        return compare("decoded_skip_special", *skipping, tokenizer.decode_skip_special(ids));
      }
  );
}

CaseOutcome check_round_trip(
    const Json& test, const std::string& text, const Tokenizer& tokenizer
) {
  return first_failure(
      [&] {
        const auto ids = tokenizer.encode(text, AddedTokens::kRecognised);
        return compare("ids", test.at("ids"), json_of(ids));
      },
      [&] {
        const auto ids = tokenizer.encode(text, AddedTokens::kPlain);
        return compare("ids_plain", either(test, "ids_plain", "ids"), json_of(ids));
      },
      [&] { return check_decoding(test, tokenizer); }
  );
}

CaseOutcome check_digest(const std::vector<int32_t>& ids, const Json& count, const Json& digest) {
  return first_failure(
      [&] { return compare("count", count, static_cast<int64_t>(ids.size())); },
      [&] { return compare("sha256", digest, sha256_hex(std::as_bytes(std::span(ids)))); }
  );
}

CaseOutcome check_long_run(const Json& test, const Tokenizer& tokenizer) {
  const Json& rule = test.at("text_rule");
  std::string text;
  for (int64_t i = rule.at("times").as_integer(); i > 0; --i)
    text += rule.at("repeat").as_string();
  text += rule.at("then").as_string();
  return first_failure(
      [&] {
        const auto ids = tokenizer.encode(text, AddedTokens::kRecognised);
        return check_digest(ids, test.at("count"), test.at("ids_sha256_le32"));
      },
      [&] {
        const auto ids = tokenizer.encode(text, AddedTokens::kPlain);
        return check_digest(
            ids,
            either(test, "plain_count", "count"),
            either(test, "plain_ids_sha256_le32", "ids_sha256_le32")
        );
      }
  );
}

/// The fixtures drop what is held at the end; a flush must give the rest of the whole text.
CaseOutcome check_incremental(const Json& test, const Tokenizer& tokenizer) {
  text::Detokenizer detokenizer(tokenizer);
  Json::Array steps;
  std::string whole;
  const auto ids = ids_of(test.at("ids"));
  for (const int32_t id : ids) {
    steps.emplace_back(detokenizer.push(id));
    whole += steps.back().as_string();
  }
  const auto released = static_cast<int64_t>(ids.size()) - detokenizer.held();
  whole += detokenizer.flush();
  return first_failure(
      [&] { return compare("steps", test.at("steps"), steps); },
      [&] { return compare("completion_tokens", test.at("completion_tokens"), released); },
      [&] { return compare("full_decode", test.at("full_decode"), whole); }
  );
}

}  // namespace

CaseOutcome run_tokenizer_case(const Json& test, const Tokenizer& tokenizer) {
  if (test.find("text_rule") != nullptr) return check_long_run(test, tokenizer);
  if (test.find("steps") != nullptr) return check_incremental(test, tokenizer);
  if (const Json* hex = test.find("bytes_hex")) {
    return check_round_trip(test, bytes_of_hex(hex->as_string()), tokenizer);
  }
  if (const Json* text = test.find("text")) {
    return check_round_trip(test, text->as_string(), tokenizer);
  }
  return check_decoding(test, tokenizer);
}

}  // namespace di::verify
