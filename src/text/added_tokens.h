// Finds the spellings of added tokens in text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace di::text {

/// A set of spellings as one byte trie, for leftmost-longest search.
class SpellingSet {
 public:
  /// A spelling's place in a text.
  struct Match {
    std::size_t begin;
    std::size_t end;
    int32_t id;
  };

  SpellingSet();

  /// Adds a non-empty spelling; a spelling added twice keeps the last id.
  void add(std::string_view spelling, int32_t id);

  /// The first place at `from` or later where a spelling stands, and the longest one there.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  struct Edge {
    char byte;
    int32_t node;
  };
  struct Node {
    std::vector<Edge> edges;
    int32_t id = -1;  ///< the spelling that ends here
  };

  int32_t child(int32_t node, char byte) const;
  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;

  std::vector<Node> nodes_;
  std::string first_bytes_;  ///< every byte that starts a spelling, once
};

}  // namespace di::text
