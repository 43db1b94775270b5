// Runs the cases of a text fixture folder: tokenizer, chat encoding and output parsing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace di::verify {

/// A case whose result differs; both sides shortened to one readable line.
struct TextMismatch {
  std::string id;
  std::string expected;
  std::string found;
};

/// One file of cases.
struct TextFileReport {
  std::string file;  ///< relative to the folder
  int64_t passed = 0;
  int64_t failed = 0;
  std::map<std::string, int64_t> skipped;  ///< how many cases for each reason
  std::vector<TextMismatch> mismatches;    ///< the first few

  int64_t skipped_cases() const;
};

/// All files of a folder.
struct TextReport {
  std::vector<TextFileReport> files;

  int64_t passed() const;
  int64_t failed() const;
  int64_t skipped() const;
};

/// Whether `folder` looks like a text fixture folder (it holds tokenizer/tokenizer.json).
bool is_text_folder(const std::string& folder);

/// Runs every .jsonl file under `folder`: those of `tokenizer/`, `encoding/` and, as far as the
/// output parser goes, `streams/`; the cases of every other file are counted as skipped. Throws
/// Error when the folder's tokenizer cannot be loaded; a malformed case counts as failed.
TextReport verify_text_folder(const std::string& folder);

}  // namespace di::verify
