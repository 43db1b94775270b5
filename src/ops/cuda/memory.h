// The memory of one GPU.
#pragma once

#include "tensor/memory.h"

namespace di::ops::cuda {

/// Memory of the current device. allocate() takes device memory, never managed memory; copies are
/// asynchronous where the machine's side is pinned.
const Memory& device_memory();

/// The machine's memory, pinned: copies from and to it run beside the processor, and the device
/// can read it through the bus at the same addresses.
const Memory& pinned_memory();

}  // namespace di::ops::cuda
