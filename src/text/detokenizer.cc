// Holding back what may still become a character; see detokenizer.h.
#include "text/detokenizer.h"

#include "text/utf8.h"

namespace di::text {

std::string Detokenizer::push(int32_t id) {
  pending_ += tokenizer_->token_bytes(id);
  ++held_;
  if (ends_in_replacement(pending_)) return {};
  return flush();
}

std::string Detokenizer::flush() {
  std::string text = repaired_utf8(pending_);
  pending_.clear();
  held_ = 0;
  return text;
}

}  // namespace di::text
