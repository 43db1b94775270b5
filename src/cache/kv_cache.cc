#include "cache/kv_cache.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

namespace di::cache {

KvCache::KvCache(Layout layout, int64_t num_blocks, int64_t num_slots, const Memory& memory)
    : layout_(std::move(layout)),
      memory_(memory),
      blocks_(memory.allocate(
          num_blocks * layout_.block_bytes,
          "the KV cache; a shorter context or fewer sequences would help"
      )),
      slots_(memory.allocate(
          num_slots * layout_.slot_bytes, "the KV cache; fewer sequences would help"
      )),
      block_pool_(num_blocks),
      slot_pool_(num_slots) {}

void KvCache::copy_block(int32_t from, int32_t to, Stream stream) {
  const int64_t bytes = layout_.block_bytes;
  memory_.copy(blocks_.get() + to * bytes, blocks_.get() + from * bytes, bytes, stream);
}

void KvCache::copy_slot(int32_t from, int32_t to, Stream stream) {
  const int64_t bytes = layout_.slot_bytes;
  memory_.copy(slots_.get() + to * bytes, slots_.get() + from * bytes, bytes, stream);
}

std::unique_ptr<KvCache> KvCache::on_host(Stream stream) const {
  auto copy = std::make_unique<KvCache>(layout_, block_pool_.size(), slot_pool_.size());
  memory_.copy(
      copy->blocks_.get(), blocks_.get(), block_pool_.size() * layout_.block_bytes, stream
  );
  memory_.copy(copy->slots_.get(), slots_.get(), slot_pool_.size() * layout_.slot_bytes, stream);
  memory_.wait(stream);
  return copy;
}

const BlockSection& KvCache::owner(int64_t layer) const {
  const int64_t index = layout_.owner_of[static_cast<std::size_t>(layer)];
  DI_CHECK(index >= 0, "only layers with a compressor own compressed entries");
  return layout_.owners[static_cast<std::size_t>(index)];
}

ops::RingView KvCache::ring(int64_t layer) const {
  const SlotSection& section = layout_.rings[static_cast<std::size_t>(layer)];
  return {slots_.get() + section.offset, layout_.slot_bytes, section.length, section.record_bytes};
}

ops::RingView KvCache::carry(int64_t layer) const {
  const int64_t index = layout_.owner_of[static_cast<std::size_t>(layer)];
  const SlotSection& section = layout_.carries[static_cast<std::size_t>(index)];
  return {slots_.get() + section.offset, layout_.slot_bytes, section.length, section.record_bytes};
}

ops::PagedView KvCache::compressed(int64_t layer) const {
  const BlockSection& section = owner(layer);
  return {
      blocks_.get() + section.kv_offset,
      layout_.block_bytes,
      section.entries_per_block,
      section.kv_record_bytes};
}

ops::PagedView KvCache::index_keys(int64_t layer) const {
  const BlockSection& section = owner(layer);
  return {
      blocks_.get() + section.index_offset,
      layout_.block_bytes,
      section.entries_per_block,
      section.index_code_bytes};
}

SequenceState::SequenceState(KvCache& cache) : cache_(&cache) {
  std::optional<SlotRef> slot = cache.slot_pool().take();
  if (!slot) throw Error(ErrorCode::kOutOfMemory, "all state slots are taken by other sequences");
  holdings_.slot = std::move(*slot);
}

void SequenceState::reserve_tokens(int64_t num_tokens) {
  BlockPool& pool = cache_->block_pool();
  const int64_t needed = ceil_div(num_tokens, kBlockTokens) - std::ssize(holdings_.blocks);
  if (needed > pool.num_free()) {
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format(
            "{} tokens need {} more blocks of {} tokens, {} are free",
            num_tokens,
            needed,
            kBlockTokens,
            pool.num_free()
        )
    );
  }
  for (int64_t i = 0; i < needed; ++i) {
    holdings_.blocks.push_back(*pool.take());
    block_table_.push_back(holdings_.blocks.back().id());
  }
}

}  // namespace di::cache
