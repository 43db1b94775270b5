// Counts the calls that keep the processor waiting for a device, so that a test can prove that
// launching a step makes none.
#pragma once

#include <cstdint>

namespace di::ops::cuda {

/// A call of this thread waits for the device, or may: a wait for a stream or an event, an
/// allocation or its end, a copy of memory that is not pinned.
void note_wait();

/// Such calls of this thread so far.
int64_t num_waits();

/// Whether copies look up if their memory is pinned, which takes as long as the copy's call itself.
/// Off at first; for tests.
void watch_copies(bool on);
bool watches_copies();

}  // namespace di::ops::cuda
