// SlotArrays: growing arrays of integers, one a state slot, where the ops of a backend read them:
// the tokens of the sequences, and their block tables.
#pragma once

#include <memory>
#include <vector>

#include "tensor/memory.h"

namespace di::engine {

/// On the processor the arrays are the caller's own vectors; for a device they are mirrored, and
/// only what is new is copied.
///
/// Thread: one at a time.
class SlotArrays {
 public:
  /// Room for `capacity` integers a slot. Throws Error{kOutOfMemory}.
  SlotArrays(const Memory& memory, int64_t num_slots, int64_t capacity, const char* what);

  /// Forgets what a slot held: a new sequence took it.
  void restart(int64_t slot);

  /// What a slot holds behind its first `count` values is no longer what it was.
  void truncate(int64_t slot, int64_t count);

  /// `values`, of which those mirrored before have not changed, where ops behind `stream` read
  /// them. The vector must stay as it is until they are done.
  const int32_t* update(int64_t slot, const std::vector<int32_t>& values, Stream stream);

 private:
  const Memory& memory_;
  int64_t capacity_;
  std::shared_ptr<std::byte> arrays_;  // [slots, capacity]; nullptr on the processor
  std::vector<int64_t> mirrored_;      // [slots]: how many of each
};

}  // namespace di::engine
