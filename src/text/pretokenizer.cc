// The cascade of splits; see pretokenizer.h.
#include "text/pretokenizer.h"

#include <span>

#include "text/utf8.h"

namespace di::text {
namespace {

/// What one call of split() works on.
struct Work {
  Regex::Scratch& scratch;
  std::vector<std::string_view>& words;
};

/// Cuts `text` by the first of `stages`, and every piece by the others.
void split_by(std::span<const Regex> stages, std::string_view text, const Work& work) {
  if (text.empty()) return;
  if (stages.empty()) {
    work.words.push_back(text);
    return;
  }
  const auto pass_on = [&](std::size_t begin, std::size_t end) {
    split_by(stages.subspan(1), text.substr(begin, end - begin), work);
  };
  std::size_t done = 0;
  std::size_t from = 0;
  while (from < text.size()) {
    const auto match = stages.front().find(text, from, work.scratch);
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

}  // namespace

Pretokenizer::Pretokenizer(const std::vector<std::string>& patterns, std::string_view where)
    : newer_character_(newer_character_pattern(), Categories::kLibrary, where) {
  for (const std::string& pattern : patterns) {
    stages_.emplace_back(pattern, Categories::kLibrary, where);
    newer_stages_.emplace_back(pattern, Categories::kUnicode16, where);
  }
}

void Pretokenizer::split(
    std::string_view text, Regex::Scratch& scratch, std::vector<std::string_view>& words
) const {
  const bool newer = newer_character_.find(text, 0, scratch).has_value();
  split_by(newer ? newer_stages_ : stages_, text, {scratch, words});
}

}  // namespace di::text
