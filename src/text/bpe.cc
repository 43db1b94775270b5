// Merging over a linked list of tokens with a queue of candidate pairs; see bpe.h.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>

#include "base/check.h"

namespace di::text {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kRankMask = (1u << 22) - 1;

/// Fibonacci hashing: the product's high bits depend on every bit of the pair.
uint64_t hash_of(int32_t left, int32_t right) {
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  return pair * 0x9E3779B97F4A7C15;
}

/// Bits of the hash that no slot index uses, in the place beside a rank.
uint32_t tag_of(uint64_t hash) {
  return static_cast<uint32_t>(hash >> 8) & ~kRankMask;
}

uint64_t candidate(uint32_t rank, int32_t position) {
  return uint64_t{rank} << 32 | static_cast<uint32_t>(position);
}

/// Runs of one character come sorted already.
void sort_candidates(std::vector<uint64_t>& candidates) {
  if (std::is_sorted(candidates.begin(), candidates.end())) return;
  std::sort(candidates.begin(), candidates.end());
}

/// Takes the candidate of the lowest rank, the leftmost of equals.
std::optional<uint64_t> take_best(Bpe::Scratch& scratch) {
  auto& [symbols, sorted, used, heap] = scratch;
  if (used == sorted.size()) {
    if (heap.empty()) return std::nullopt;
    sorted.swap(heap);
    heap.clear();
    used = 0;
    sort_candidates(sorted);
  }
  if (heap.empty() || sorted[used] < heap.front()) return sorted[used++];
  const uint64_t best = heap.front();
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  heap.pop_back();
  return best;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_tokens, std::span<const Merge> merges)
    : byte_tokens_(byte_tokens), merges_(merges.begin(), merges.end()) {
  DI_CHECK(merges.size() <= kMaxMerges, "a rank and its tag share 32 bits");
  const std::size_t size = std::bit_ceil(merges.size() * 2 + 2);
  slots_.resize(size);
  shift_ = 64 - std::countr_zero(size);
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t hash = hash_of(merges[rank].left, merges[rank].right);
    std::size_t index = hash >> shift_;
    while (slots_[index] != 0)
      index = (index + 1) & (size - 1);
    slots_[index] = tag_of(hash) | (rank + 1);
  }
  for (const int32_t left : byte_tokens_) {
    for (const int32_t right : byte_tokens_)
      byte_pair_ranks_.push_back(rank_of(left, right));
  }
}

/// The rank of this pair's merge, or kNoRank.
uint32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const uint64_t hash = hash_of(left, right);
  const uint32_t tag = tag_of(hash);
  for (std::size_t index = hash >> shift_; slots_[index] != 0;
       index = (index + 1) & (slots_.size() - 1)) {
    if ((slots_[index] & ~kRankMask) != tag) continue;
    const uint32_t rank = (slots_[index] & kRankMask) - 1;
    if (merges_[rank].left == left && merges_[rank].right == right) return rank;
  }
  return kNoRank;
}

/// Lists the word's bytes as symbols and their pairs as candidates.
void Bpe::start(std::string_view word, Scratch& scratch) const {
  scratch.symbols.clear();
  scratch.sorted.clear();
  scratch.used = 0;
  const auto size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    const bool last = i + 1 == size;
    const uint32_t rank =
        last ? kNoRank : byte_pair_ranks_[byte * 256u + static_cast<uint8_t>(word[i + 1])];
    scratch.symbols.push_back({byte_tokens_[byte], i - 1, last ? -1 : i + 1, rank});
    if (rank != kNoRank) scratch.sorted.push_back(candidate(rank, i));
  }
  sort_candidates(scratch.sorted);
}

/// Merges the symbol at `position` with its right neighbour and queues the two new pairs.
void Bpe::apply_merge(Scratch& scratch, int32_t position) const {
  auto& symbols = scratch.symbols;
  Scratch::Symbol& symbol = symbols[position];
  Scratch::Symbol& absorbed = symbols[symbol.next];
  symbol.token = merges_[symbol.rank].result;
  symbol.next = absorbed.next;
  absorbed.rank = kNoRank;
  if (symbol.next >= 0) symbols[symbol.next].previous = position;

  for (const int32_t at : {symbol.previous, position}) {
    if (at < 0) continue;
    const int32_t next = symbols[at].next;
    symbols[at].rank = next < 0 ? kNoRank : rank_of(symbols[at].token, symbols[next].token);
    if (symbols[at].rank == kNoRank) continue;
    scratch.heap.push_back(candidate(symbols[at].rank, at));
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  start(word, scratch);
  while (const auto best = take_best(scratch)) {
    const auto position = static_cast<int32_t>(*best & UINT32_MAX);
    if (scratch.symbols[position].rank == *best >> 32) apply_merge(scratch, position);
  }
  for (int32_t i = 0; i >= 0; i = scratch.symbols[i].next)
    ids.push_back(scratch.symbols[i].token);
}

}  // namespace di::text
