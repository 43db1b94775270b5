// The cascade of splits; see pretokenizer.h.
#include "text/pretokenizer.h"

#include "text/utf8.h"

namespace di::text {

Pretokenizer::Pretokenizer(const std::vector<std::string>& patterns, std::string_view where) {
  stages_.reserve(patterns.size());
  for (const std::string& pattern : patterns)
    stages_.emplace_back(pattern, where);
}

void Pretokenizer::split(
    std::string_view text, Regex::Scratch& scratch, std::vector<std::string_view>& words
) const {
  split_from(0, text, scratch, words);
}

void Pretokenizer::split_from(
    std::size_t stage,
    std::string_view text,
    Regex::Scratch& scratch,
    std::vector<std::string_view>& words
) const {
  if (text.empty()) return;
  if (stage == stages_.size()) {
    words.push_back(text);
    return;
  }
  const auto pass_on = [&](std::size_t begin, std::size_t end) {
    split_from(stage + 1, text.substr(begin, end - begin), scratch, words);
  };
  std::size_t done = 0;
  std::size_t from = 0;
  while (from < text.size()) {
    const auto match = stages_[stage].find(text, from, scratch);
    if (!match) break;
    pass_on(done, match->begin);
    pass_on(match->begin, match->end);
    done = from = match->end;
    // An empty match cuts, and the search goes on behind the next character.
    if (match->begin == match->end && from < text.size()) {
      from += utf8_step(text.substr(from)).length;
    }
  }
  pass_on(done, text.size());
}

}  // namespace di::text
