// Lines of a batch: one request each, as JSON. docs/batch.md describes them.
#pragma once

#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "base/json.h"
#include "cli/prompt_options.h"
#include "engine/request.h"

namespace di::cli {

/// What one line asks for.
struct BatchLine {
  engine::Request request = {};  ///< its id is the caller's to choose
  AnswerOptions answer = {};
  Json id = {};  ///< what the line calls itself; null: nothing
};

/// What every line starts from.
struct BatchDefaults {
  Json sampling = {};           ///< parameters, overruled by a line's own
  std::string format = "v4.1";  ///< chat format of conversations
};

/// Reads a line: {"prompt": text} or {"prompt_token_ids": [id, …]} or {"conversation": {…}}, beside
/// it id, user, priority, timeout_seconds and any sampling parameter. Throws Error for what is
/// wrong with it.
BatchLine parse_batch_line(
    const Json& json, const BatchDefaults& defaults, const text::Tokenizer& tokenizer
);

/// The lines of a file, or of standard input.
class BatchFile {
 public:
  /// "-": standard input. Throws Error{kNotFound} when the file cannot be read.
  explicit BatchFile(const std::string& path);

  /// The next line that is not blank, or nothing at the end.
  std::optional<std::string> next();

  /// Number of the line that came last, from 1.
  int64_t line() const { return line_; }

 private:
  std::ifstream file_;
  std::istream* in_ = nullptr;
  int64_t line_ = 0;
};

}  // namespace di::cli
