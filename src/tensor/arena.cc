#include "tensor/arena.h"

#include <algorithm>
#include <new>

namespace di {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstChunk = std::size_t{1} << 20;

}  // namespace

void Arena::FreeAligned::operator()(std::byte* pointer) const {
  ::operator delete[](pointer, std::align_val_t{kAlignment});
}

std::byte* Arena::take_bytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (chunk_ < chunks_.size() && used_ + rounded > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const std::size_t last = chunks_.empty() ? kFirstChunk / 2 : chunks_.back().size;
    const std::size_t size = std::max(rounded, last * 2);
    chunks_.push_back(
        {{std::unique_ptr<std::byte, FreeAligned>(
             static_cast<std::byte*>(::operator new[](size, std::align_val_t{kAlignment}))
         )},
         size}
    );
  }
  std::byte* result = chunks_[chunk_].data.get() + used_;
  used_ += rounded;
  std::size_t in_use = used_;
  for (std::size_t i = 0; i < chunk_; ++i)
    in_use += chunks_[i].size;
  peak_ = std::max(peak_, in_use);
  return result;
}

}  // namespace di
