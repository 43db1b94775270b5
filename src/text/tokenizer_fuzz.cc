// Any bytes as tokenizer.json: an error or a tokenizer that encodes and decodes, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const di::text::Tokenizer tokenizer(di::text::parse_tokenizer_file(text, "fuzz"), "fuzz");
    // Its own first bytes are as good a text as any.
    const std::string_view sample = text.substr(0, 512);
    tokenizer.decode(tokenizer.encode(sample, di::text::AddedTokens::kRecognised));
    tokenizer.decode(tokenizer.encode(sample, di::text::AddedTokens::kPlain));
  } catch (const di::Error&) {
    // A named error is what a damaged file deserves.
  }
  return 0;
}
