// Unicode normal forms and case; the only file that touches utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace di::text {

/// NFKC of valid UTF-8.
std::string nfkc(std::string_view text);

/// NFD of valid UTF-8.
std::string nfd(std::string_view text);

/// Without the characters of category Mark.
std::string without_marks(std::string_view text);

/// Every character in full lower case, without regard to its neighbours.
std::string lower_case(std::string_view text);

/// Without White_Space at both ends.
std::string trimmed(std::string_view text);

}  // namespace di::text
