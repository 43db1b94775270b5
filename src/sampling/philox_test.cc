#include "sampling/philox.h"

#include <set>

#include <gtest/gtest.h>

namespace di::sampling {
namespace {

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(
      philox4x32({0, 0, 0, 0}, {0, 0}),
      (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u})
  );
  EXPECT_EQ(
      philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
      (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu})
  );
  EXPECT_EQ(
      philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u})
  );
}

TEST(Philox, LaysOutSeedPositionAndStreamAsDocumented) {
  constexpr uint64_t kSeed = 0x0123456789abcdef;
  constexpr int64_t kPosition = 0x1122334455;
  const auto words = philox4x32({0x22334455u, 0x11u, 8, 0}, {0x89abcdefu, 0x01234567u});
  const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
  EXPECT_EQ(derived_seed(kSeed, kPosition, Stream::kChoiceSeed), bits);
  const auto target = philox4x32({0x22334455u, 0x11u, 0, 0}, {0x89abcdefu, 0x01234567u});
  const uint64_t target_bits = uint64_t{target[1]} << 32 | target[0];
  EXPECT_EQ(
      uniform(kSeed, kPosition, Stream::kTarget), static_cast<double>(target_bits >> 11) * 0x1p-53
  );
  const auto draft = philox4x32({0x22334455u, 0x11u, 1, 4}, {0x89abcdefu, 0x01234567u});
  const uint64_t draft_bits = uint64_t{draft[1]} << 32 | draft[0];
  EXPECT_EQ(
      uniform(kSeed, kPosition, Stream::kDraft, 4), static_cast<double>(draft_bits >> 11) * 0x1p-53
  );
}

TEST(Philox, GivesUniformNumbersBelowOne) {
  double sum = 0;
  for (int64_t position = 0; position < 100000; ++position) {
    const double u = uniform(5, position, Stream::kTarget);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.004);  // over four standard deviations of the mean
}

}  // namespace
}  // namespace di::sampling
