// The random world driven by a fuzzer's bytes: a choice takes one or two of them.
#include <cstddef>
#include <cstdint>

#include "sched/random_world.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  std::size_t place = 0;
  const auto next = [&]() -> int64_t { return place < size ? data[place++] : 0; };
  di::sched::RandomWorld world([&](int64_t n) {
    const int64_t low = next();
    return (n > 256 ? low + 256 * next() : low) % n;
  });
  while (place < size)
    world.turn(true);
  world.drain();
  return 0;
}
