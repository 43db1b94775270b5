// The dialect of patterns in tokenizer.json, told to PCRE2.
#pragma once

#include <string>

namespace di::text {

/// The pattern with every class spelled so that PCRE2 of any version matches the same characters:
/// \s and \S are exactly White_Space and its complement, and \p{L}, \p{M}, \p{N}, \p{P} and \p{S}
/// follow Unicode 16, inside and outside of [ ]. \S and \P{..} inside [ ] stay as PCRE2 reads them.
std::string pcre2_pattern(const std::string& pattern);

}  // namespace di::text
