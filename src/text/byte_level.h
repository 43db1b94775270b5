// The byte-level alphabet of tokenizer.json: each of the 256 bytes is spelled as one visible
// character, so that a vocabulary of byte strings can stand in a JSON file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace di::text {

/// The visible character that spells `byte` in a vocabulary, as UTF-8.
std::string byte_spelling(uint8_t byte);

/// The spelling of a byte string.
std::string byte_level_spelling(std::string_view bytes);

/// The bytes that `spelling` (valid UTF-8) stands for, or nothing when a character of it spells no
/// byte.
std::optional<std::string> byte_level_bytes(std::string_view spelling);

}  // namespace di::text
