// KvCache: the memory of blocks and state slots, who holds which, and the views that ops read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/layout.h"
#include "cache/pools.h"

namespace di::cache {

/// Owns the memory of every block and state slot, and the pools that say who holds them.
///
/// Thread: the views and copies belong to the thread that runs steps, the pools to the one that
/// plans them. Must outlive all handles that came from its pools.
class KvCache {
 public:
  /// Reserves the memory (the system commits pages when they are first written).
  /// Throws Error{kOutOfMemory} with the numbers when the system refuses.
  KvCache(Layout layout, int64_t num_blocks, int64_t num_slots);

  const Layout& layout() const { return layout_; }
  BlockPool& block_pool() { return block_pool_; }
  SlotPool& slot_pool() { return slot_pool_; }

  /// Copies all that block `from` holds to block `to`.
  void copy_block(int32_t from, int32_t to);
  /// Copies all that slot `from` holds to slot `to`.
  void copy_slot(int32_t from, int32_t to);

  /// Layer `layer`'s window rings.
  ops::RingView ring(int64_t layer) const;
  /// The fp32 carry rows of an owner layer.
  ops::RingView carry(int64_t layer) const;
  /// Compressed KV records of an owner layer.
  ops::PagedView compressed(int64_t layer) const;
  /// Index keys of an owner layer.
  ops::PagedView index_keys(int64_t layer) const;

 private:
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
  BlockPool block_pool_;
  SlotPool slot_pool_;
};

/// A lone sequence's share of a KvCache, outside any scheduler: a state slot and the blocks it has
/// so far.
class SequenceState {
 public:
  /// Takes a slot. Throws Error{kOutOfMemory} when none is free.
  explicit SequenceState(KvCache& cache);

  /// Takes blocks until `num_tokens` tokens fit. Throws Error{kOutOfMemory}, and takes none, when
  /// too few are free.
  void reserve_tokens(int64_t num_tokens);

  int64_t slot() const { return holdings_.slot.id(); }
  const int32_t* block_table() const { return block_table_.data(); }

 private:
  KvCache* cache_;
  Holdings holdings_;
  std::vector<int32_t> block_table_;  // the ids of holdings_.blocks
};

}  // namespace di::cache
