#include "ops/cuda/waits.h"

#include <atomic>

namespace di::ops::cuda {
namespace {

thread_local int64_t waits = 0;
std::atomic<bool> watching{false};

}  // namespace

void note_wait() {
  ++waits;
}

int64_t num_waits() {
  return waits;
}

void watch_copies(bool on) {
  watching = on;
}

bool watches_copies() {
  return watching.load(std::memory_order_relaxed);
}

}  // namespace di::ops::cuda
