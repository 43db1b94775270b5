// Rows that are moved behind draws, and drafts that are put behind them.
#include "ops/cuda/draft_rows.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;

constexpr int64_t kRows = 3;  // of a sequence
constexpr int64_t kVocab = 100;
constexpr int64_t kCapacity = 16;  // of a sequence's tokens

/// Something with a position in it.
struct Anchor {
  int64_t position = -1;
  int64_t other = 7;
};

/// Four sequences: two that drew, one whose draw is no token, and one that fills the step up.
struct Sequences {
  Sequences() {
    const int64_t known[] = {5, 2, 3, 4};
    std::vector<DraftPlace> all_places;
    std::vector<SequenceRows> all_rows;
    for (int64_t s = 0; s < 4; ++s) {
      int32_t* own = tokens.data() + s * kCapacity;
      if (s < 3) all_places.push_back({.tokens = own, .known = known[s], .drawn = 2 - s});
      all_rows.push_back(
          {.first_row = s * kRows, .num_rows = kRows, .start = known[s] - 1, .tokens = own}
      );
    }
    all_places.emplace_back();
    places.emplace(all_places);
    rows.emplace(all_rows);
  }

  View<const DraftPlace, 1> place_view() const {
    return View<const DraftPlace, 1>(places->data(), 4);
  }
  View<const int32_t, 1> drawn_view() const { return View<const int32_t, 1>(num_drawn.data(), 3); }

  // [4, kCapacity]: token i of sequence s is 10 · s + i, but the one behind sequence 2 is none.
  DeviceArray<int32_t> tokens{[] {
    std::vector<int32_t> all;
    for (int32_t s = 0; s < 4; ++s) {
      for (int32_t i = 0; i < kCapacity; ++i)
        all.push_back(s == 2 && i == 3 ? -1 : 10 * s + i);
    }
    return all;
  }()};
  DeviceArray<int32_t> num_drawn{std::vector<int32_t>{1, 4, 2}};  // of sequences 2, 1, 0
  std::optional<DeviceArray<DraftPlace>> places;
  std::optional<DeviceArray<SequenceRows>> rows;
};

TEST(DraftRowsOnCuda, AreMovedBehindTheDraws) {
  DI_NEEDS_GPU();
  Machine machine;
  const Sequences given;
  DeviceArray<int64_t> positions(std::vector<int64_t>(4 * kRows, 99));
  DeviceArray<int32_t> anchors(4);
  DeviceArray<Anchor> seen(std::vector<Anchor>(4));
  anchor_rows(
      machine.device(),
      {.places = given.place_view(),
       .num_drawn = given.drawn_view(),
       .rows =
           {.sequences = {given.rows->data(), 4},
            .sequence_of = {},
            .positions = View<const int64_t, 1>(positions.data(), 4 * kRows)},
       .anchors = View<int32_t, 1>(anchors.data(), 4),
       .anchor_positions = &seen.data()->position,
       .position_stride = sizeof(Anchor),
       .vocab_size = kVocab}
  );
  machine.wait();
  EXPECT_EQ(anchors.read(), (std::vector<int32_t>{6, 15, 0, 0}));
  EXPECT_EQ(positions.read(), (std::vector<int64_t>{6, 7, 8, 5, 6, 7, 3, 4, 5, 99, 99, 99}));
  const std::vector<SequenceRows> sequences = given.rows->read();
  const std::vector<Anchor> found = seen.read();
  const int64_t starts[] = {6, 5, 3, 3};
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_EQ(sequences[s].start, starts[s]);
    EXPECT_EQ(found[s].position, s < 3 ? starts[s] : -1);
    EXPECT_EQ(found[s].other, 7);
  }
  EXPECT_EQ(given.tokens.read()[2 * kCapacity + 3], 0)
      << "what is no token is a token from then on";
}

TEST(DraftRowsOnCuda, DraftsAreStoredBehindTheNewestToken) {
  DI_NEEDS_GPU();
  Machine machine;
  const Sequences given;
  const DeviceArray<int32_t> drafts(std::vector<int32_t>{50, 51, 52, 53, 60, 61, 62, 63});
  std::vector<int32_t> expected = given.tokens.read();
  const int64_t newest[] = {6, 5, 3};
  for (int64_t s = 0; s < 3; ++s) {
    expected[static_cast<std::size_t>(s * kCapacity + newest[s] + 1)] =
        static_cast<int32_t>(50 + s);
    expected[static_cast<std::size_t>(s * kCapacity + newest[s] + 2)] =
        static_cast<int32_t>(60 + s);
  }
  store_drafts(
      machine.device(),
      {.places = given.place_view(),
       .num_drawn = given.drawn_view(),
       .drafts = View<const int32_t, 2>(drafts.data(), 2, 4)}
  );
  machine.wait();
  EXPECT_EQ(given.tokens.read(), expected);
}

}  // namespace
}  // namespace di::ops::cuda
