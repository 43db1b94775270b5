// The trie of added tokens; see added_tokens.h. Spellings start with few different bytes, so the
// search leaps from one such byte to the next.
#include "text/added_tokens.h"

namespace di::text {

SpellingSet::SpellingSet() : nodes_(1) {}

void SpellingSet::add(std::string_view spelling, int32_t id) {
  if (first_bytes_.find(spelling.front()) == std::string::npos) first_bytes_ += spelling.front();
  int32_t node = 0;
  for (const char byte : spelling) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].edges.push_back({byte, next});
    }
    node = next;
  }
  nodes_[node].id = id;
}

std::optional<SpellingSet::Match> SpellingSet::find(std::string_view text, std::size_t from) const {
  if (first_bytes_.empty()) return std::nullopt;
  for (std::size_t begin = text.find_first_of(first_bytes_, from); begin != std::string_view::npos;
       begin = text.find_first_of(first_bytes_, begin + 1)) {
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

int32_t SpellingSet::child(int32_t node, char byte) const {
  for (const Edge& edge : nodes_[node].edges) {
    if (edge.byte == byte) return edge.node;
  }
  return -1;
}

std::optional<SpellingSet::Match> SpellingSet::match_at(std::string_view text, std::size_t begin)
    const {
  std::optional<Match> longest;
  int32_t node = 0;
  for (std::size_t end = begin; end < text.size();) {
    node = child(node, text[end++]);
    if (node < 0) break;
    if (nodes_[node].id >= 0) longest = Match{begin, end, nodes_[node].id};
  }
  return longest;
}

}  // namespace di::text
