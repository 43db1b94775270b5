#include "engine/cuda/slot_memory.h"

#include "base/math.h"
#include "cache/layout.h"

namespace di::engine::cuda {
namespace {

constexpr auto kWord = static_cast<int64_t>(sizeof(int32_t));
constexpr auto kParamBytes = static_cast<int64_t>(sizeof(sampling::cuda::SlotParams));

int64_t token_bytes(int64_t context) {
  return align_up((context + 1 + 2 * cache::kRollbackTokens) * kWord, 16);
}

int64_t block_bytes(int64_t context) {
  return align_up(ceil_div(context, cache::kBlockTokens) * kWord, 16);
}

}  // namespace

SlotMemory::SlotMemory(const Memory& memory, int64_t slots, int64_t context, int64_t vocab_size)
    : slots_(slots),
      token_bytes_(token_bytes(context)),
      block_bytes_(block_bytes(context)),
      area_bytes_(sampling::cuda::slot_area_bytes(vocab_size)),
      memory_(memory.allocate(
          bytes(slots, context, vocab_size), "the slots' tokens and sampling; lower max_num_seqs"
      )) {}

int64_t SlotMemory::bytes(int64_t slots, int64_t context, int64_t vocab_size) {
  return slots * (token_bytes(context) + block_bytes(context) +
                  sampling::cuda::slot_area_bytes(vocab_size) + 2 * kParamBytes);
}

int32_t* SlotMemory::tokens(int64_t slot) const {
  return reinterpret_cast<int32_t*>(memory_.get() + slot * token_bytes_);
}

int32_t* SlotMemory::blocks(int64_t slot) const {
  return reinterpret_cast<int32_t*>(memory_.get() + slots_ * token_bytes_ + slot * block_bytes_);
}

sampling::cuda::SlotArea SlotMemory::area(int64_t slot) const {
  std::byte* areas = memory_.get() + slots_ * (token_bytes_ + block_bytes_);
  return {areas + slot * area_bytes_, area_bytes_};
}

sampling::cuda::SlotParams* SlotMemory::params() const {
  return reinterpret_cast<sampling::cuda::SlotParams*>(
      memory_.get() + slots_ * (token_bytes_ + block_bytes_ + area_bytes_)
  );
}

sampling::cuda::SlotParams* SlotMemory::draft_params() const {
  return params() + slots_;
}

}  // namespace di::engine::cuda
