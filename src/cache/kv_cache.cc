#include "cache/kv_cache.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

namespace di::cache {
namespace {

/// 0 comes out first, so that a lone sequence uses the lowest addresses.
std::vector<int32_t> descending_ids(int64_t count) {
  std::vector<int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.rbegin(), ids.rend(), 0);
  return ids;
}

}  // namespace

void KvCache::Unmap::operator()(std::byte* pointer) const {
  ::munmap(pointer, bytes);
}

KvCache::Memory KvCache::reserve(int64_t bytes) {
  if (bytes == 0) return Memory(nullptr, Unmap{});
  const auto size = static_cast<std::size_t>(bytes);
  void* data = ::mmap(
      nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
  );
  if (data == MAP_FAILED) {
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format(
            "the system refuses {} bytes for the KV cache; ask for a shorter context", bytes
        )
    );
  }
  return Memory(static_cast<std::byte*>(data), Unmap{size});
}

KvCache::KvCache(Layout layout, int64_t num_blocks, int64_t num_slots)
    : layout_(std::move(layout)),
      blocks_(reserve(num_blocks * layout_.block_bytes)),
      slots_(reserve(num_slots * layout_.slot_bytes)),
      free_blocks_(descending_ids(num_blocks)),
      free_slots_(descending_ids(num_slots)) {}

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
  if (cache.free_slots_.empty()) {
    throw Error(ErrorCode::kOutOfMemory, "all state slots are taken by other sequences");
  }
  slot_ = cache.free_slots_.back();
  cache.free_slots_.pop_back();
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      slot_(other.slot_),
      block_table_(std::move(other.block_table_)) {}

SequenceState::~SequenceState() {
  if (cache_ == nullptr) return;
  cache_->free_slots_.push_back(slot_);
  for (auto block = block_table_.rbegin(); block != block_table_.rend(); ++block) {
    cache_->free_blocks_.push_back(*block);
  }
}

void SequenceState::reserve_tokens(int64_t num_tokens) {
  const int64_t needed =
      ceil_div(num_tokens, kBlockTokens) - static_cast<int64_t>(block_table_.size());
  if (needed > cache_->num_free_blocks()) {
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format(
            "{} tokens need {} more blocks of {} tokens, {} are free",
            num_tokens,
            needed,
            kBlockTokens,
            cache_->num_free_blocks()
        )
    );
  }
  for (int64_t i = 0; i < needed; ++i) {
    block_table_.push_back(cache_->free_blocks_.back());
    cache_->free_blocks_.pop_back();
  }
}

}  // namespace di::cache
