#include "tensor/arena.h"

#include <algorithm>

#include "base/check.h"

namespace di {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kFirstChunk = std::size_t{1} << 20;

}  // namespace

std::byte* Arena::take_bytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (chunk_ < chunks_.size() && used_ + rounded > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const std::size_t last = chunks_.empty() ? kFirstChunk / 2 : chunks_.back().size;
    const std::size_t size = std::max(rounded, last * 2);
    add_chunk(size);
  }
  std::byte* result = chunks_[chunk_].data.get() + used_;
  used_ += rounded;
  std::size_t in_use = used_;
  for (std::size_t i = 0; i < chunk_; ++i)
    in_use += chunks_[i].size;
  peak_ = std::max(peak_, in_use);
  return result;
}

void Arena::add_chunk(std::size_t bytes) {
  chunks_.push_back({memory_.allocate(static_cast<int64_t>(bytes), "the scratch of a step"), bytes}
  );
}

void Arena::reserve(std::size_t bytes) {
  DI_CHECK(chunks_.empty(), "an arena reserves before it is used");
  if (bytes > 0) add_chunk(bytes);
}

std::size_t Arena::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks_)
    sum += chunk.size;
  return sum;
}

}  // namespace di
