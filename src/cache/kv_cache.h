// KvCache: the memory of blocks and state slots, who holds which, and the views that ops read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/layout.h"

namespace di::cache {

/// Owns every block and state slot. Handing out and taking back cost O(1).
///
/// Thread: one at a time; must outlive all SequenceState that came from it.
class KvCache {
 public:
  /// Reserves the memory (the system commits pages when they are first written).
  /// Throws Error{kOutOfMemory} with the numbers when the system refuses.
  KvCache(Layout layout, int64_t num_blocks, int64_t num_slots);

  const Layout& layout() const { return layout_; }
  int64_t num_free_blocks() const { return static_cast<int64_t>(free_blocks_.size()); }
  int64_t num_free_slots() const { return static_cast<int64_t>(free_slots_.size()); }

  /// Layer `layer`'s window rings.
  ops::RingView ring(int64_t layer) const;
  /// The fp32 carry rows of an owner layer.
  ops::RingView carry(int64_t layer) const;
  /// Compressed KV records of an owner layer.
  ops::PagedView compressed(int64_t layer) const;
  /// Index keys of an owner layer.
  ops::PagedView index_keys(int64_t layer) const;

 private:
  friend class SequenceState;

  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* pointer) const;
  };
  using Memory = std::unique_ptr<std::byte, Unmap>;

  static Memory reserve(int64_t bytes);
  const BlockSection& owner(int64_t layer) const;

  Layout layout_;
  Memory blocks_;
  Memory slots_;
  std::vector<int32_t> free_blocks_;
  std::vector<int32_t> free_slots_;
};

/// One sequence's share of a KvCache: a state slot and the blocks it has so far. Gives both back
/// when it ends, however it ends.
class SequenceState {
 public:
  /// Takes a slot. Throws Error{kOutOfMemory} when none is free.
  explicit SequenceState(KvCache& cache);
  ~SequenceState();
  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&&) = delete;
  SequenceState(const SequenceState&) = delete;

  /// Takes blocks until `num_tokens` tokens fit. Throws Error{kOutOfMemory}, and takes none, when
  /// too few are free.
  void reserve_tokens(int64_t num_tokens);

  int64_t slot() const { return slot_; }
  const int32_t* block_table() const { return block_table_.data(); }

 private:
  KvCache* cache_;
  int32_t slot_;
  std::vector<int32_t> block_table_;
};

}  // namespace di::cache
