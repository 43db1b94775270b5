// Handles give back what they hold, once for each share.
#include "cache/pools.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace di::cache {
namespace {

TEST(IdPool, HandsOutEachIdOnceAndTheLowestFirst) {
  IdPool pool(3);
  std::vector<IdRef> taken;
  for (int32_t id = 0; id < 3; ++id) {
    auto ref = pool.take();
    ASSERT_TRUE(ref.has_value());
    EXPECT_EQ(ref->id(), id);
    taken.push_back(std::move(*ref));
  }
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_FALSE(pool.take().has_value());
}

TEST(IdPool, TakesBackWhatAHandleHeld) {
  IdPool pool(1);
  {
    const auto ref = pool.take();
    EXPECT_EQ(pool.num_free(), 0);
  }
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take()->id(), 0);
}

TEST(IdPool, KeepsAnIdUntilItsLastShareEnds) {
  IdPool pool(2);
  auto first = pool.take();
  IdRef second = first->share();
  IdRef third = second.share();
  EXPECT_EQ(second.id(), first->id());
  EXPECT_EQ(third.num_shares(), 3);
  first->reset();
  second.reset();
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_shares(third.id()), 1);
  third.reset();
  third.reset();
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(IdPool, MovesAShareWithoutCountingItTwice) {
  IdPool pool(2);
  IdRef a = std::move(*pool.take());
  IdRef b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_TRUE(b);
  EXPECT_EQ(b.num_shares(), 1);
  IdRef c = std::move(*pool.take());
  c = std::move(b);
  EXPECT_EQ(pool.num_free(), 1) << "what the handle held before is given back";
  EXPECT_EQ(c.num_shares(), 1);
}

TEST(IdPool, AnEmptyHandleHoldsNothing) {
  IdRef empty;
  empty.reset();
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.num_shares(), 0);
  EXPECT_DEATH(static_cast<void>(empty.share()), "nothing to share");
}

TEST(IdPool, OfSizeZeroHasNothing) {
  IdPool pool(0);
  EXPECT_EQ(pool.size(), 0);
  EXPECT_FALSE(pool.take().has_value());
}

TEST(Holdings, EndTogetherAndMoveTogether) {
  IdPool blocks(4);
  IdPool slots(1);
  Holdings holdings;
  EXPECT_TRUE(holdings.empty());
  holdings.slot = std::move(*slots.take());
  for (int i = 0; i < 3; ++i)
    holdings.blocks.push_back(std::move(*blocks.take()));
  EXPECT_FALSE(holdings.empty());
  {
    const Holdings moved = std::move(holdings);
    EXPECT_EQ(blocks.num_free(), 1);
  }
  EXPECT_EQ(blocks.num_free(), 4);
  EXPECT_EQ(slots.num_free(), 1);
}

}  // namespace
}  // namespace di::cache
