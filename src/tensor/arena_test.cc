#include "tensor/arena.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace di {
namespace {

TEST(Arena, GivesAlignedMemoryThatStaysInPlaceWhileItGrows) {
  Arena arena;
  const View<int32_t, 2> small = arena.array<int32_t>(3, 5);
  small(2, 4) = 7;
  const View<double, 1> large = arena.array<double>(1 << 20);
  large(large.size() - 1) = 1.5;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data) % 64, 0u);
  EXPECT_EQ(small(2, 4), 7);
  EXPECT_GE(arena.peak_bytes(), sizeof(double) << 20);
}

TEST(Arena, AScopeGivesBackWhatWasTakenInsideIt) {
  Arena arena;
  arena.take<char>(100);
  void* inside = nullptr;
  {
    const Arena::Scope scope(arena);
    inside = arena.take<char>(100);
    arena.take<char>(8 << 20);  // opens another chunk
  }
  EXPECT_EQ(arena.take<char>(100), inside);
}

}  // namespace
}  // namespace di
