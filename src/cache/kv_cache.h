// KvCache: the memory of blocks and state slots, who holds which, and the views that ops read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/layout.h"
#include "cache/pools.h"
#include "tensor/memory.h"

namespace di::cache {

/// Owns the memory of every block and state slot, and the pools that say who holds them.
///
/// Thread: the views and copies belong to the thread that runs steps, the pools to the one that
/// plans them. Must outlive all handles that came from its pools.
class KvCache {
 public:
  /// Reserves the memory. Throws Error{kOutOfMemory} with the numbers when it is refused.
  KvCache(
      Layout layout, int64_t num_blocks, int64_t num_slots, const Memory& memory = host_memory()
  );

  const Layout& layout() const { return layout_; }
  BlockPool& block_pool() { return block_pool_; }
  SlotPool& slot_pool() { return slot_pool_; }

  /// Copies all that block `from` holds to block `to`, behind what `stream` already holds.
  void copy_block(int32_t from, int32_t to, Stream stream = nullptr);
  /// Copies all that slot `from` holds to slot `to`, behind what `stream` already holds.
  void copy_slot(int32_t from, int32_t to, Stream stream = nullptr);

  /// A copy of all its bytes in the machine's memory, behind what `stream` already holds.
  std::unique_ptr<KvCache> on_host(Stream stream) const;

  /// Layer `layer`'s window rings.
  ops::RingView ring(int64_t layer) const;
  /// The fp32 carry rows of an owner layer.
  ops::RingView carry(int64_t layer) const;
  /// Compressed KV records of an owner layer.
  ops::PagedView compressed(int64_t layer) const;
  /// Index keys of an owner layer.
  ops::PagedView index_keys(int64_t layer) const;

 private:
  const BlockSection& owner(int64_t layer) const;

  Layout layout_;
  const Memory& memory_;
  std::shared_ptr<std::byte> blocks_;
  std::shared_ptr<std::byte> slots_;
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
  /// Block ids in order of position, in the machine's memory.
  const std::vector<int32_t>& block_table() const { return block_table_; }

 private:
  KvCache* cache_;
  Holdings holdings_;
  std::vector<int32_t> block_table_;  // the ids of holdings_.blocks
};

}  // namespace di::cache
