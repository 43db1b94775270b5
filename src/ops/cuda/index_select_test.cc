#include "ops/cuda/index_select.h"

#include <algorithm>

#include "base/isa.h"
#include "ops/cuda/index_testing.h"
#include "ops/cuda/index_top_k.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::IndexSequence;
using testing::IndexShape;
using testing::Machine;
using testing::RandomIndex;

constexpr IndexShape kModel{32, 128, 1, 512, 8, 2048};

struct Selection {
  std::vector<int32_t> selected;
  std::vector<int32_t> candidates;
  bool operator==(const Selection&) const = default;
};

/// What the fastest processor kernels select, which is what the reference selects.
Selection on_host(IndexSelect op, const IndexShape& shape, bool source) {
  const int64_t rows = op.rows.count();
  Selection result;
  result.selected.assign(static_cast<std::size_t>(rows * shape.topk), -7);
  op.selected = View<int32_t, 2>(result.selected.data(), rows, shape.topk);
  if (source) {
    result.candidates.assign(static_cast<std::size_t>(rows * shape.blocks), -7);
    op.candidates_out = View<int32_t, 2>(result.candidates.data(), rows, shape.blocks);
  }
  Machine machine;
  cpu_ops(usable_isas(detect_cpu()).back()).index_select(machine.host(), op);
  return result;
}

Selection on_device(Machine& machine, IndexSelect op, const IndexShape& shape, bool source) {
  const int64_t rows = op.rows.count();
  DeviceArray<int32_t> selected(rows * shape.topk);
  DeviceArray<int32_t> candidates(source ? rows * shape.blocks : 1);
  selected.poison();
  candidates.poison();
  op.selected = View<int32_t, 2>(selected.data(), rows, shape.topk);
  if (source) op.candidates_out = View<int32_t, 2>(candidates.data(), rows, shape.blocks);
  index_select(machine.device(), op);
  Selection result{selected.read(), {}};
  if (source) result.candidates = candidates.read();
  return result;
}

/// Places of bf16 numbers on the number line, so that neighbours differ by one.
int place_of(float score) {
  const int bits = to_bf16(score).bits;
  return (bits & 0x8000) != 0 ? 0x8000 - bits : bits;
}

/// Entries or blocks that only one of two lists of a row names may differ by the last bit of their
/// scores; the device's sums over heads are not the reference's in double.
class Comparison {
 public:
  Comparison(const IndexSelect& host, int64_t block_size) : op_(host), block_size_(block_size) {}

  void expect_same(
      const std::vector<int32_t>& found, const std::vector<int32_t>& expected, int64_t width
  ) {
    ASSERT_EQ(found.size(), expected.size());
    for (int64_t row = 0; row < std::ssize(expected) / width; ++row) {
      const auto begin = static_cast<std::ptrdiff_t>(row * width);
      const std::vector<int32_t> a(found.begin() + begin, found.begin() + begin + width);
      const std::vector<int32_t> b(expected.begin() + begin, expected.begin() + begin + width);
      if (a != b) expect_close(row, a, b);
    }
  }

  int64_t swapped() const { return swapped_; }

 private:
  void expect_close(int64_t row, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    std::vector<int32_t> only_a, only_b;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only_a));
    std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(only_b));
    ASSERT_EQ(only_a.size(), only_b.size()) << "row " << row;
    only_a.insert(only_a.end(), only_b.begin(), only_b.end());
    int low = 1 << 20;
    int high = -(1 << 20);
    for (const int32_t id : only_a) {
      ASSERT_GE(id, 0) << "row " << row;
      low = std::min(low, place_of(score(row, id)));
      high = std::max(high, place_of(score(row, id)));
    }
    EXPECT_LE(high - low, 1) << "row " << row << ": " << only_a.size() << " differ";
    swapped_ += std::ssize(only_b);
  }

  float score(int64_t row, int64_t id) const {
    const SequenceRows& sequence =
        op_.rows.sequences[static_cast<std::size_t>(op_.rows.sequence_of(row))];
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t j = id * block_size_; j < (id + 1) * block_size_; ++j) {
      if (j < (op_.rows.positions(row) + 1) / op_.ratio) {
        best = std::max(best, ref::index_score(op_, row, sequence.block_table, j));
      }
    }
    return best;
  }

  const IndexSelect& op_;
  int64_t block_size_;
  int64_t swapped_ = 0;
};

/// Compares a candidate source and a consumer of what it names.
void expect_reference(const RandomIndex& random) {
  const IndexShape& shape = random.shape();
  Machine machine;
  const RandomIndex::OnDevice device(random);
  IndexSelect host = random.host();
  IndexSelect op = device.op();
  const Selection expected = on_host(host, shape, true);
  const Selection found = on_device(machine, op, shape, true);
  Comparison entries(host, 1);
  Comparison blocks(host, shape.block_size);
  entries.expect_same(found.selected, expected.selected, shape.topk);
  blocks.expect_same(found.candidates, expected.candidates, shape.blocks);

  const DeviceArray<int32_t> candidates(expected.candidates);
  host.candidates_in =
      View<const int32_t, 2>(expected.candidates.data(), random.rows(), shape.blocks);
  op.candidates_in = View<const int32_t, 2>(candidates.data(), random.rows(), shape.blocks);
  const Selection among = on_device(machine, op, shape, false);
  entries.expect_same(among.selected, on_host(host, shape, false).selected, shape.topk);
  if (entries.swapped() + blocks.swapped() > 0) {
    std::printf(
        "%ld entries and %ld blocks swapped with others within the last bit\n",
        static_cast<long>(entries.swapped()),
        static_cast<long>(blocks.swapped())
    );
  }
}

class IndexOnCuda : public ::testing::TestWithParam<IndexShape> {};

TEST_P(IndexOnCuda, SelectsWhatTheReferenceSelects) {
  DI_NEEDS_GPU();
  for (unsigned seed = 0; seed < 4; ++seed) {
    expect_reference(RandomIndex(seed, GetParam(), {{700, 1}, {0, 3}, {311, 40}, {5, 1}}, 2));
    expect_reference(RandomIndex(seed + 10, GetParam(), {{int64_t{64} * seed, 1}}));
  }
}

TEST_P(IndexOnCuda, GivesARowTheSameSelectionAloneAsInItsBatch) {
  DI_NEEDS_GPU();
  Machine machine;
  const IndexShape& shape = GetParam();
  const RandomIndex random(40, shape, {{900, 1}, {127, 37}, {1000, 2}});
  const RandomIndex::OnDevice device(random);
  const IndexSelect op = device.op();
  const Selection whole = on_device(machine, op, shape, true);
  for (int64_t row = 0; row < random.rows(); ++row) {
    IndexSelect alone = op;
    alone.q_codes =
        View<const uint8_t, 3>(op.q_codes.row(row), 1, op.q_codes.dim(1), op.q_codes.dim(2));
    alone.q_scales =
        View<const uint8_t, 3>(op.q_scales.row(row), 1, op.q_scales.dim(1), op.q_scales.dim(2));
    alone.head_weights = View<const bf16, 2>(op.head_weights.row(row), 1, op.head_weights.dim(1));
    alone.rows.sequence_of = View<const int32_t, 1>(op.rows.sequence_of.data + row, 1);
    alone.rows.positions = View<const int64_t, 1>(op.rows.positions.data + row, 1);
    const Selection one = on_device(machine, alone, shape, true);
    EXPECT_TRUE(std::equal(
        one.selected.begin(), one.selected.end(), whole.selected.begin() + row * shape.topk
    )) << row;
    EXPECT_TRUE(std::equal(
        one.candidates.begin(), one.candidates.end(), whole.candidates.begin() + row * shape.blocks
    )) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    IndexOnCuda,
    ::testing::Values(
        IndexShape{32, 128, 1, 48, 8, 8},
        IndexShape{32, 128, 2, 512, 8, 30},
        IndexShape{17, 128, 2, 48, 16, 8, 115},
        IndexShape{4, 128, 1, 48, 8, 8},
        IndexShape{4, 64, 1, 64, 8, 16},
        IndexShape{4, 64, 2, 64, 8, 16},
        IndexShape{3, 128, 16, 7, 5, 3},
        IndexShape{5, 32, 1, 7, 5, 3}
    )
);

TEST(IndexSelectOnCudaTest, SelectsInLongContexts) {
  DI_NEEDS_GPU();
  expect_reference(RandomIndex(1, kModel, {{40'000, 1}, {17'000, 2}}));
  IndexShape halves = kModel;
  halves.ratio = 2;
  expect_reference(RandomIndex(2, halves, {{50'000, 3}}));
}

TEST(IndexSelectOnCudaTest, TakesRowsAloneOfUnequalContexts) {
  DI_NEEDS_GPU();
  IndexShape halves = kModel;
  halves.ratio = 2;
  for (const IndexShape& shape : {kModel, halves}) {
    expect_reference(RandomIndex(
        8,
        shape,
        {{30'000, 1}, {0, 1}, {5, 1}, {17'000, 1}, {700, 1}, {63, 1}, {64, 1}, {255, 1}},
        1
    ));
  }
  std::vector<IndexSequence> many;
  for (int64_t i = 0; i < 300; ++i)
    many.push_back({i * 37 % 1000, 1});
  expect_reference(RandomIndex(9, kModel, many));
}

TEST(IndexSelectOnCudaTest, TakesScalesOfAKeyThatLieFarApart) {
  DI_NEEDS_GPU();
  for (const uint8_t scale : {uint8_t{40}, uint8_t{180}}) {
    RandomIndex random(6, kModel, {{70'000, 1}, {3'000, 3}});
    for (int64_t j = 0; j < 3'000; j += 7)
      random.keys()[random.scale_at(j % 2, j) + static_cast<std::size_t>(j % 4)] = scale;
    expect_reference(random);
  }
}

TEST(IndexSelectOnCudaTest, PrefersTheFirstOfEqualEntries) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomIndex random(3, kModel, {{40'000, 1}, {600, 1}});
  random.repeat_one_key();
  const RandomIndex::OnDevice device(random);
  const Selection found = on_device(machine, device.op(), kModel, true);
  for (std::size_t i = 0; i < 512; ++i) {
    EXPECT_EQ(found.selected[i], i);
    EXPECT_EQ(found.selected[512 + i], i);
  }
  for (std::size_t i = 0; i < 2048; ++i) {
    EXPECT_EQ(found.candidates[i], i == 2047 ? 40'000 / 8 : static_cast<int>(i));
    EXPECT_EQ(found.candidates[2048 + i], i < 76 ? static_cast<int>(i) : -1);
  }
}

TEST(IndexSelectOnCudaTest, NeverSelectsNaNAndKeepsItInItsRow) {
  DI_NEEDS_GPU();
  Machine machine;
  RandomIndex random(4, kModel, {{2'000, 20}});
  const RandomIndex::OnDevice clean(random);
  const Selection expected = on_device(machine, clean.op(), kModel, true);
  random.q_scales()[5 * 32 * 4 + 17] = 255;  // row 5
  const RandomIndex::OnDevice device(random);
  const Selection found = on_device(machine, device.op(), kModel, true);
  for (std::size_t row = 0; row < 20; ++row) {
    for (std::size_t i = 0; i < 512; ++i) {
      const std::size_t at = row * 512 + i;
      EXPECT_EQ(found.selected[at], row == 5 ? -1 : expected.selected[at]);
    }
  }
  random.q_scales()[5 * 32 * 4 + 17] = 124;
  const int32_t lost = expected.selected[0];
  random.keys()[random.scale_at(0, lost)] = 255;
  const RandomIndex::OnDevice key(random);
  const Selection without = on_device(machine, key.op(), kModel, false);
  EXPECT_EQ(std::count(without.selected.begin(), without.selected.end(), lost), 0);
}

TEST(IndexSelectOnCudaTest, RefusesWorkspaceOfUnknownSize) {
  DI_NEEDS_GPU();
  Machine machine;
  const RandomIndex random(5, kModel, {{10, 1}});
  const RandomIndex::OnDevice device(random);
  IndexSelect op = device.op();
  op.rows.max_length = 0;
  EXPECT_ANY_THROW(on_device(machine, op, kModel, false));
}

/// Order keys of rows with the given numbers of entries.
void expect_best(const std::vector<int64_t>& counts, int64_t k, int kind) {
  Machine machine;
  std::mt19937 random(static_cast<unsigned>(kind));
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  const auto rows = std::ssize(counts);
  const int64_t stride = (longest / kScoreTile + 1) * kScoreTile;
  std::vector<uint16_t> keys(static_cast<std::size_t>(rows * stride), 0);
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t count = counts[static_cast<std::size_t>(row)];
    positions.push_back(count - 1);
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = static_cast<uint32_t>(random());
      const uint32_t choices[] = {
          draw & 0xffff,
          0x8000,
          0xbf00 + (draw & 7),
          draw % 100 == 0 ? 0x9000u : 0u,
          static_cast<uint32_t>(i & 0xffff),
          0xbd00 + (draw >> 8 & draw & 0x1ff)};
      keys[static_cast<std::size_t>(row * stride + i)] =
          static_cast<uint16_t>(choices[static_cast<std::size_t>(kind)]);
    }
  }
  std::vector<uint16_t> bests;
  for (std::size_t first = 0; first < keys.size(); first += kVectorKeys)
    bests.push_back(*std::max_element(keys.begin() + first, keys.begin() + first + kVectorKeys));
  const DeviceArray<uint16_t> device_keys(keys);
  const DeviceArray<uint16_t> device_bests(bests);
  const DeviceArray<int64_t> device_positions(positions);
  DeviceArray<int32_t> selected(rows * k);
  selected.poison();
  IndexSelect op;
  op.selected = View<int32_t, 2>(selected.data(), rows, k);
  op.rows.positions = View<const int64_t, 1>(device_positions.data(), rows);
  op.rows.max_length = longest;
  select_entries(
      machine.device(),
      op,
      {.keys = device_keys.data(),
       .bests = device_bests.data(),
       .stride = stride,
       .first_row = 0,
       .rows = rows}
  );
  const std::vector<int32_t> found = selected.read();
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t* own = keys.data() + row * stride;
    std::vector<int32_t> order;
    for (int32_t i = 0; i < counts[static_cast<std::size_t>(row)]; ++i) {
      if (own[i] != 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return own[a] > own[b];
    });
    order.resize(static_cast<std::size_t>(std::min<int64_t>(k, std::ssize(order))));
    std::sort(order.begin(), order.end());
    order.resize(static_cast<std::size_t>(k), -1);
    EXPECT_TRUE(std::equal(order.begin(), order.end(), found.begin() + row * k))
        << "row " << row << " kind " << kind;
  }
}

TEST(IndexSelectOnCudaTest, KeepsTheBestOfManyRows) {
  DI_NEEDS_GPU();
  std::vector<int64_t> counts(700);
  for (std::size_t row = 0; row < counts.size(); ++row)
    counts[row] = row % 7 == 0 ? 16'384 : static_cast<int64_t>(row * 5);
  for (const int kind : {0, 1, 3, 5})
    expect_best(counts, 512, kind);
  expect_best(counts, 2'048, 5);
}

TEST(IndexSelectOnCudaTest, KeepsTheBestOfAnyNumber) {
  DI_NEEDS_GPU();
  for (int kind = 0; kind < 6; ++kind) {
    expect_best({0, 1, 511, 512, 513, 4'095, 16'384, 16'385, 100'001, 65'536}, 512, kind);
    expect_best({20'000, 300, 16'000}, 2'048, kind);
    expect_best({20'000, 300, 16'000, 3}, 7, kind);
  }
  expect_best({1 << 20, 70'000}, 512, 5);
  expect_best({1 << 20}, 2'048, 1);
}

}  // namespace
}  // namespace di::ops::cuda
