// Who holds which blocks and slots, and what is refused.
#include "cache/kv_cache.h"

#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/known_models.h"

namespace di::cache {
namespace {

class KvCacheTest : public ::testing::Test {
 protected:
  KvCache cache_{make_layout(v41_flash_config()), /*num_blocks=*/8, /*num_slots=*/2};
};

TEST_F(KvCacheTest, HandlesReturnWhatTheyTook) {
  {
    SequenceState first(cache_);
    SequenceState second(cache_);
    first.reserve_tokens(129);
    second.reserve_tokens(1);
    EXPECT_EQ(cache_.slot_pool().num_free(), 0);
    EXPECT_EQ(cache_.block_pool().num_free(), 5);
  }
  EXPECT_EQ(cache_.slot_pool().num_free(), 2);
  EXPECT_EQ(cache_.block_pool().num_free(), 8);
}

TEST_F(KvCacheTest, NoTwoSequencesShareABlock) {
  SequenceState first(cache_), second(cache_);
  std::set<int32_t> ids;
  for (int64_t tokens = 128; tokens <= 512; tokens += 128) {  // in turn
    first.reserve_tokens(tokens);
    second.reserve_tokens(tokens);
  }
  for (const SequenceState* state : {&first, &second})
    ids.insert(state->block_table().begin(), state->block_table().end());
  EXPECT_EQ(ids.size(), 8);
  EXPECT_NE(first.slot(), second.slot());
}

TEST_F(KvCacheTest, ReservingAgainTakesOnlyWhatIsMissing) {
  SequenceState state(cache_);
  state.reserve_tokens(128);
  state.reserve_tokens(100);
  EXPECT_EQ(cache_.block_pool().num_free(), 7);
  const int32_t first = state.block_table()[0];
  state.reserve_tokens(129);
  EXPECT_EQ(cache_.block_pool().num_free(), 6);
  EXPECT_EQ(state.block_table()[0], first);
}

TEST_F(KvCacheTest, TooFewBlocksAreRefusedAndNoneIsTaken) {
  SequenceState first(cache_), second(cache_);
  first.reserve_tokens(6 * kBlockTokens);
  try {
    second.reserve_tokens(2 * kBlockTokens + 1);
    ADD_FAILURE() << "three blocks of two";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(cache_.block_pool().num_free(), 2);
  second.reserve_tokens(2 * kBlockTokens);
  EXPECT_EQ(cache_.block_pool().num_free(), 0);
}

TEST_F(KvCacheTest, TooFewSlotsAreRefused) {
  SequenceState first(cache_), second(cache_);
  try {
    SequenceState third(cache_);
    ADD_FAILURE() << "three slots of two";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

TEST_F(KvCacheTest, AMovedHandleReturnsOnce) {
  {
    SequenceState state(cache_);
    state.reserve_tokens(300);
    const SequenceState moved(std::move(state));
    EXPECT_EQ(cache_.block_pool().num_free(), 5);
  }
  EXPECT_EQ(cache_.block_pool().num_free(), 8);
  EXPECT_EQ(cache_.slot_pool().num_free(), 2);
}

TEST_F(KvCacheTest, ALoneSequenceUsesTheLowestAddresses) {
  SequenceState state(cache_);
  state.reserve_tokens(256);
  EXPECT_EQ(state.slot(), 0);
  EXPECT_EQ(state.block_table()[0], 0);
  EXPECT_EQ(state.block_table()[1], 1);
}

TEST_F(KvCacheTest, AnImpossibleSizeIsRefusedWithItsNumber) {
  const int64_t blocks = int64_t{1} << 40;
  try {
    const KvCache huge(make_layout(v41_flash_config()), blocks, 1);
    ADD_FAILURE() << "more than an address space";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("KV cache"), std::string::npos);
  }
}

}  // namespace
}  // namespace di::cache
