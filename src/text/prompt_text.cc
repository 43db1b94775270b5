// Appending pieces; see prompt_text.h.
#include "text/prompt_text.h"

namespace di::text {

void PromptText::mark(std::string_view spelling) {
  ranges_.push_back({text_.size(), text_.size() + spelling.size()});
  text_ += spelling;
}

void PromptText::mixed(
    std::string_view text, std::span<const std::string_view> marks, std::size_t limit
) {
  for (; limit > 0; --limit) {
    std::size_t first = std::string_view::npos;
    std::string_view found;
    for (const std::string_view spelling : marks) {
      const std::size_t at = text.find(spelling);
      if (at < first) {
        first = at;
        found = spelling;
      }
    }
    if (found.empty()) break;
    plain(text.substr(0, first));
    mark(found);
    text.remove_prefix(first + found.size());
  }
  plain(text);
}

}  // namespace di::text
