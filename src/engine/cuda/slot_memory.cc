#include "engine/cuda/slot_memory.h"

#include "base/math.h"
#include "cache/layout.h"

namespace di::engine::cuda {
namespace {

using sampling::cuda::DraftRecord;
using sampling::cuda::SlotParams;

/// Bytes of `count` values, so that what follows is aligned.
template <class T>
int64_t bytes_of(int64_t count) {
  return align_up(count * static_cast<int64_t>(sizeof(T)), 16);
}

}  // namespace

SlotMemory::Strides::Strides(const Size& size)
    : tokens(bytes_of<int32_t>(size.context + 1 + 2 * cache::kRollbackTokens)),
      blocks(bytes_of<int32_t>(ceil_div(size.context, cache::kBlockTokens))),
      records(bytes_of<DraftRecord>(size.num_drafts)),
      area(sampling::cuda::slot_area_bytes(size.vocab_size)),
      params(sizeof(SlotParams)) {}

SlotMemory::SlotMemory(const Memory& memory, const Size& size)
    : size_(size),
      strides_(size),
      memory_(memory.allocate(bytes(size), "the slots' tokens and sampling; lower max_num_seqs")) {}

int64_t SlotMemory::bytes(const Size& size) {
  return size.slots * Strides(size).all();
}

int32_t* SlotMemory::tokens(int64_t slot) const {
  return reinterpret_cast<int32_t*>(at(0, strides_.tokens, slot));
}

int32_t* SlotMemory::blocks(int64_t slot) const {
  return reinterpret_cast<int32_t*>(at(strides_.tokens, strides_.blocks, slot));
}

DraftRecord* SlotMemory::records(int64_t slot) const {
  const int64_t before = strides_.tokens + strides_.blocks;
  return reinterpret_cast<DraftRecord*>(at(before, strides_.records, slot));
}

sampling::cuda::SlotArea SlotMemory::area(int64_t slot) const {
  const int64_t before = strides_.tokens + strides_.blocks + strides_.records;
  return {at(before, strides_.area, slot), strides_.area};
}

SlotParams* SlotMemory::params() const {
  return reinterpret_cast<SlotParams*>(at(strides_.all() - strides_.params, 0, 0));
}

}  // namespace di::engine::cuda
