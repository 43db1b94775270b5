#include "cli/terminal.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

namespace di::cli {

AnswerPrinter::AnswerPrinter() : colours_(isatty(STDOUT_FILENO) != 0) {}

void AnswerPrinter::set_dim(bool dim) {
  if (dim == dim_) return;
  dim_ = dim;
  std::fputs(colours_ ? (dim ? "\x1b[2m" : "\x1b[0m\n\n") : (dim ? "" : "\n\n"), stdout);
}

void AnswerPrinter::print(const text::OutputEvent& event) {
  using Kind = text::OutputEvent::Kind;
  set_dim(event.kind == Kind::kReasoning);
  if (event.kind == Kind::kToolCall) std::fputs("\n[call] ", stdout);
  std::fwrite(event.text.data(), 1, event.text.size(), stdout);
  if (event.kind == Kind::kToolCall) std::fputc(' ', stdout);
  std::fflush(stdout);
}

void AnswerPrinter::finish() {
  if (dim_ && colours_) std::fputs("\x1b[0m", stdout);
  dim_ = false;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

std::string summary_line(int64_t num_tokens, const std::string& reason, const AnswerTimes& times) {
  return fmt::format(
      "{} tokens, {:.1f} tokens/s; prompt {} tokens in {:.2f} s; stopped: {}",
      num_tokens,
      times.tokens_per_second(num_tokens),
      times.prompt_tokens,
      times.prefill_seconds,
      reason
  );
}

std::string read_standard_input() {
  std::string text;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;)
    text.append(buffer, n);
  return text;
}

}  // namespace di::cli
