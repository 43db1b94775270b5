// Byte-pair merging: a word's bytes become tokens by applying the learned merges in rank order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace di::text {

/// One learned merge: `left` and `right` side by side become `result`. Its place in the list is its
/// rank.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

/// The merges of one tokenizer. Const use is thread-safe; each thread brings its own Scratch.
class Bpe {
 public:
  /// Working memory that is kept from word to word.
  struct Scratch;

  /// More merges than this do not fit the table.
  static constexpr std::size_t kMaxMerges = (std::size_t{1} << 22) - 2;

  /// `byte_tokens[b]` is the token of the single byte b; `merges` (at most kMaxMerges) are in rank
  /// order, each pair at most once.
  Bpe(const std::array<int32_t, 256>& byte_tokens, std::span<const Merge> merges);

  /// Appends the tokens of `word` (under 2^31 bytes): again and again the pair of the lowest rank,
  /// the leftmost of equals, is merged. Takes O(n log n) steps for n bytes.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  uint32_t rank_of(int32_t left, int32_t right) const;
  void start(std::string_view word, Scratch& scratch) const;
  void apply_merge(Scratch& scratch, int32_t position) const;

  std::array<int32_t, 256> byte_tokens_;
  std::vector<Merge> merges_;
  std::vector<uint32_t> byte_pair_ranks_;  ///< by left byte · 256 + right byte
  std::vector<uint32_t> slots_;            ///< open-addressed: rank + 1 beside a tag of the pair
  int shift_ = 0;                          ///< 64 minus the table's size in bits
};

struct Bpe::Scratch {
  /// A token of the word so far, linked to its neighbours (-1: none), with the rank of the merge
  /// that it and its right neighbour would make.
  struct Symbol {
    int32_t token;
    int32_t previous;
    int32_t next;
    uint32_t rank;
  };
  std::vector<Symbol> symbols;

  // Candidates as rank << 32 | position, the next one first; some are out of date when they come
  // up. Most are known before the first merge, so they are sorted once; the later ones wait in a
  // heap until the sorted ones are used up.
  std::vector<uint64_t> sorted;
  std::size_t used = 0;  ///< of `sorted`
  std::vector<uint64_t> heap;
};

}  // namespace di::text
