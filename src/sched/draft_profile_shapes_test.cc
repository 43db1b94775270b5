// Shapes of a profile: within limits, none twice, useful however early it ends.
#include "sched/draft_profile_shapes.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

TEST(ProfileShapes, KeepTheLimitsAndComeOnce) {
  for (const int64_t most : {1, 2, 3, 7, 16, 100, 256}) {
    for (int64_t drafts = 0; drafts <= 5; ++drafts) {
      for (const int64_t rows : {1, 6, 64, 2048}) {
        std::set<std::pair<int64_t, int64_t>> seen;
        for (const ProfileShape& shape : profile_shapes({most, drafts, rows})) {
          EXPECT_TRUE(seen.insert({shape.sequences, shape.rows_each}).second);
          EXPECT_LE(shape.sequences, most);
          EXPECT_LE(shape.rows_each, 1 + drafts);
          EXPECT_LE(shape.rows(), rows);
          EXPECT_GE(shape.rows(), 1);
          EXPECT_EQ(shape.drafting, shape.rows_each > 1);
        }
        EXPECT_TRUE(seen.contains({1, 1}));
        EXPECT_LE(seen.size(), 64u);
      }
    }
  }
}

TEST(ProfileShapes, SpanTheWholeEarly) {
  const std::vector<ProfileShape> shapes = profile_shapes({64, 5, 2048});
  ASSERT_GT(shapes.size(), 12u);
  EXPECT_EQ(shapes[0].rows(), 1);
  EXPECT_EQ(shapes[1].rows(), 6);
  // One sequence with every number of drafts, and the full batch with none and with all.
  std::set<std::pair<int64_t, int64_t>> early;
  for (std::size_t i = 0; i < 8; ++i)
    early.insert({shapes[i].sequences, shapes[i].rows_each});
  for (int64_t rows = 1; rows <= 6; ++rows)
    EXPECT_TRUE(early.contains({1, rows}));
  EXPECT_TRUE(early.contains({64, 1}) && early.contains({64, 6}));
}

TEST(ProfileShapes, AreRunWhileTheyFitTheTime) {
  DraftCosts costs;
  const ProfileShape shape{8, 1, false};
  EXPECT_TRUE(fits_profile(shape, costs, 1e-6));
  EXPECT_FALSE(fits_profile(shape, costs, 0));
  costs.observe({.rows = 1}, {0.01});
  // Nothing is known of eight rows: they may cost eight times as much.
  EXPECT_TRUE(fits_profile(shape, costs, 0.33));
  EXPECT_FALSE(fits_profile(shape, costs, 0.31));
  costs.observe({.rows = 8}, {0.012});
  EXPECT_TRUE(fits_profile(shape, costs, 0.05));
}

}  // namespace
}  // namespace di::sched
