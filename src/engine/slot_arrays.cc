#include "engine/slot_arrays.h"

#include <algorithm>

#include "base/check.h"

namespace di::engine {
namespace {

constexpr auto kSize = static_cast<int64_t>(sizeof(int32_t));

}  // namespace

SlotArrays::SlotArrays(const Memory& memory, int64_t num_slots, int64_t capacity, const char* what)
    : memory_(memory), capacity_(capacity), mirrored_(static_cast<std::size_t>(num_slots)) {
  if (!memory.is_host()) arrays_ = memory.allocate(num_slots * capacity * kSize, what);
}

void SlotArrays::restart(int64_t slot) {
  mirrored_[static_cast<std::size_t>(slot)] = 0;
}

void SlotArrays::truncate(int64_t slot, int64_t count) {
  int64_t& mirrored = mirrored_[static_cast<std::size_t>(slot)];
  mirrored = std::min(mirrored, count);
}

const int32_t* SlotArrays::update(int64_t slot, const std::vector<int32_t>& values, Stream stream) {
  if (arrays_ == nullptr) return values.data();
  DI_CHECK(std::ssize(values) <= capacity_, "an array stays within its slot");
  auto* array = reinterpret_cast<int32_t*>(arrays_.get()) + slot * capacity_;
  int64_t& mirrored = mirrored_[static_cast<std::size_t>(slot)];
  const int64_t fresh = std::ssize(values) - mirrored;
  if (fresh > 0) memory_.copy(array + mirrored, values.data() + mirrored, fresh * kSize, stream);
  mirrored = std::ssize(values);
  return array;
}

}  // namespace di::engine
