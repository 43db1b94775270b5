// The dialect of patterns in tokenizer.json, told to PCRE2.
#pragma once

#include <string>

namespace di::text {

/// Which characters the general categories L, M, N, P and S hold.
enum class Categories {
  kLibrary,    ///< those that PCRE2 knows: at least those of Unicode 14
  kUnicode16,  ///< what Unicode 16 added as well; slower
};

/// The pattern spelled so that PCRE2 matches what tokenizer.json means: \s and \S are exactly
/// White_Space and its complement, and \p{L} and its kin are as `categories` says, inside and
/// outside of [ ]. \S and \P{..} inside [ ] stay as PCRE2 reads them.
std::string pcre2_pattern(const std::string& pattern, Categories categories);

/// A pattern for one character on which the two readings of categories may differ.
std::string newer_character_pattern();

}  // namespace di::text
