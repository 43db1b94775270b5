#include "ops/cuda/expert_counts.h"

#include <algorithm>
#include <random>

#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;

/// Sequences of one row each; the rows behind them repeat row 0 and belong to nobody.
struct PaddedRows {
  DeviceArray<SequenceRows> sequences;
  DeviceArray<int32_t> sequence_of;
  DeviceArray<int64_t> positions;
  int64_t padded;

  PaddedRows(int64_t owned, int64_t all)
      : sequences(owners(owned, all)),
        sequence_of(sequence_of_rows(owned, all)),
        positions(all),
        padded(all) {}

  Rows rows() const {
    return {
        .sequences = {sequences.data(), static_cast<std::size_t>(padded)},
        .sequence_of = View<const int32_t, 1>(sequence_of.data(), padded),
        .positions = View<const int64_t, 1>(positions.data(), padded)};
  }

 private:
  static std::vector<SequenceRows> owners(int64_t owned, int64_t all) {
    std::vector<SequenceRows> list(static_cast<std::size_t>(all));
    for (int64_t i = 0; i < owned; ++i) {
      list[static_cast<std::size_t>(i)].first_row = i;
      list[static_cast<std::size_t>(i)].num_rows = 1;
    }
    return list;
  }
  static std::vector<int32_t> sequence_of_rows(int64_t owned, int64_t all) {
    std::vector<int32_t> list(static_cast<std::size_t>(all));
    for (int64_t i = 0; i < owned; ++i)
      list[static_cast<std::size_t>(i)] = static_cast<int32_t>(i);
    return list;
  }
};

TEST(ExpertCountsOnCuda, AreTheMostRowsOfAnExpertAndTheExpertsUsedInEachLayer) {
  DI_NEEDS_GPU();
  constexpr int64_t kLayers = 3;
  constexpr int64_t kChoices = 6;
  constexpr int64_t kExperts = 384;
  constexpr int64_t kPadded = 1200;
  constexpr int64_t kOwned = 1100;
  constexpr int64_t kKept = 70;
  constexpr int64_t kBorder = 2;
  std::mt19937 random(3);
  std::vector<int32_t> ids(static_cast<std::size_t>(kLayers * kPadded * kChoices));
  std::vector<int32_t> most, used;
  for (int64_t l = 0; l < kLayers; ++l) {
    std::vector<int32_t> count(static_cast<std::size_t>(kExperts));
    const int64_t owned = l < kBorder ? kOwned : kKept;
    for (int64_t i = 0; i < kPadded * kChoices; ++i) {
      const auto id = static_cast<int32_t>(random() % static_cast<unsigned>(kExperts / (l + 1)));
      ids[static_cast<std::size_t>(l * kPadded * kChoices + i)] = id;
      if (i < owned * kChoices) ++count[static_cast<std::size_t>(id)];
    }
    most.push_back(*std::max_element(count.begin(), count.end()));
    used.push_back(static_cast<int32_t>(kExperts - std::count(count.begin(), count.end(), 0)));
  }
  Machine machine;
  const DeviceArray<int32_t> device_ids(ids);
  const DeviceArray<int32_t> busiest(kLayers);
  const DeviceArray<int32_t> any(kLayers);
  const PaddedRows rows(kOwned, kPadded);
  const PaddedRows kept(kKept, kKept);
  count_experts(
      machine.device(),
      {.busiest = View<int32_t, 1>(busiest.data(), kLayers),
       .used = View<int32_t, 1>(any.data(), kLayers),
       .ids = View<const int32_t, 3>(device_ids.data(), kLayers, kPadded, kChoices),
       .rows = rows.rows(),
       .kept = kept.rows(),
       .border = kBorder,
       .experts = kExperts}
  );
  EXPECT_EQ(busiest.read(), most);
  EXPECT_EQ(any.read(), used);
}

}  // namespace
}  // namespace di::ops::cuda
