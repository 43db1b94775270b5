// Writing an answer to a terminal or a file.
#pragma once

#include <string>

#include "cli/answer.h"

namespace di::cli {

/// Streams output events to standard output; reasoning is dim on a terminal.
class AnswerPrinter {
 public:
  AnswerPrinter();
  void print(const text::OutputEvent& event);
  /// Ends the line and restores the colour.
  void finish();

 private:
  void set_dim(bool dim);

  bool colours_;
  bool dim_ = false;
};

/// "34 tokens, 51.2 tokens/s; prompt 10 tokens in 0.04 s; stopped: eos".
std::string summary_line(int64_t num_tokens, const std::string& reason, const AnswerTimes& times);

/// All of standard input.
std::string read_standard_input();

}  // namespace di::cli
