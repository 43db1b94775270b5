// Sizes that recorded steps are filled up to: large enough, and few.
#include "engine/cuda/recorded_sizes.h"

#include <set>

#include <gtest/gtest.h>

namespace di::engine::cuda {
namespace {

constexpr int64_t kLength = 1000;
constexpr int64_t kMostRows = 6;

TEST(RecordedSizes, HoldTheRowsAndSequencesOfTheStep) {
  for (int64_t sequences = 1; sequences <= 200; ++sequences) {
    const RecordedSize plain = recorded_size(sequences, sequences, 1, kLength);
    EXPECT_GE(plain.sequences, sequences);
    EXPECT_EQ(plain.rows, plain.sequences);
    EXPECT_LE(4 * plain.sequences, 5 * sequences);
    for (int64_t rows = sequences; rows <= sequences * kMostRows; ++rows) {
      const RecordedSize size = recorded_size(rows, sequences, kMostRows, kLength);
      EXPECT_GE(size.rows, rows);
      EXPECT_GE(size.sequences, sequences);
      EXPECT_LE(size.rows, size.sequences * kMostRows);
      EXPECT_LE(2 * size.sequences, 3 * sequences);
      EXPECT_GE(size.max_length, kLength);
    }
  }
}

TEST(RecordedSizes, OfOneSequenceAreItsRows) {
  for (int64_t rows = 1; rows <= kMostRows; ++rows)
    EXPECT_EQ(recorded_size(rows, 1, kMostRows, kLength).rows, rows);
}

TEST(RecordedSizes, AreAsFewAsTheyAreCounted) {
  for (const int64_t slots : {1, 5, 8, 64, 100}) {
    std::set<RecordedSize> plain, verifying;
    for (int64_t sequences = 1; sequences <= slots; ++sequences) {
      plain.insert(recorded_size(sequences, sequences, 1, kLength));
      for (int64_t rows = sequences; rows <= sequences * kMostRows; ++rows)
        verifying.insert(recorded_size(rows, sequences, kMostRows, kLength));
    }
    EXPECT_EQ(std::ssize(plain), num_recorded_sizes(slots)) << slots;
    EXPECT_LE(std::ssize(verifying), num_verifying_sizes(slots, kMostRows)) << slots;
    EXPECT_GE(max_recordings(slots, kMostRows - 1), std::ssize(plain) + std::ssize(verifying));
  }
  EXPECT_LE(num_verifying_sizes(8, kMostRows), 6 * 7);
}

TEST(RecordedSizes, OfLongSequencesDouble) {
  EXPECT_EQ(recorded_size(1, 1, 1, 4096).max_length, 4096);
  EXPECT_EQ(recorded_size(1, 1, 1, 4097).max_length, 8192);
}

}  // namespace
}  // namespace di::engine::cuda
