// Memory that has addresses and nothing behind them. A device's ops can be recorded over it without
// being run, which tells what they take before any of it is allocated.
#pragma once

#include "tensor/memory.h"

namespace di {

/// allocate() reserves addresses that nobody may read or write, copies do nothing and nobody waits.
/// To its users it is a device's memory.
const Memory& address_memory();

}  // namespace di
