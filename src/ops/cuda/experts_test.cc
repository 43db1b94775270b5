// The experts on the device against the reference, and against themselves: the same bits for a row
// alone and in any batch, with every form of the kernel.
#include "ops/cuda/experts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"
#include "ops/cuda/expert_lists.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;
using testing::relative_error;

int uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

/// A matrix in checkpoint layout, with scales that keep a chain of three products near 1.
struct RawMatrix {
  WeightFormat format;
  int64_t rows, cols;
  std::vector<std::byte> data;
  std::vector<uint8_t> scales;

  RawMatrix(std::mt19937& random, WeightFormat format_, int64_t rows_, int64_t cols_)
      : format(format_),
        rows(rows_),
        cols(cols_),
        data(static_cast<std::size_t>(data_bytes(format, rows, cols))),
        scales(static_cast<std::size_t>(scale_bytes(format, rows, cols))) {
    for (std::byte& code : data) {
      int value = uniform(random, 0, 255);
      if (format == WeightFormat::kFp8) value = (value & 0x87) | uniform(random, 3, 8) << 3;
      code = static_cast<std::byte>(value);
    }
    for (uint8_t& scale : scales)
      scale = static_cast<uint8_t>(uniform(random, 119, 123));
  }
  Weight weight() const { return {format, rows, cols, data.data(), scales.data()}; }
};

struct Sizes {
  int64_t experts, k, hidden, inner;
  WeightFormat routed = WeightFormat::kFp4;
  WeightFormat shared = WeightFormat::kFp8;
};

/// All experts of a layer, on the host as they come and packed on the device, one expert after
/// another as the loader places them.
class Layer {
 public:
  Layer(std::mt19937& random, const Sizes& sizes) : sizes_(sizes) {
    for (int64_t e = 0; e <= sizes.experts; ++e) {
      const WeightFormat format = e == sizes.experts ? sizes.shared : sizes.routed;
      for (const bool down : {false, false, true}) {
        const int64_t rows = down ? sizes.hidden : sizes.inner;
        const int64_t cols = down ? sizes.inner : sizes.hidden;
        raw_.emplace_back(random, format, rows, cols);
        offsets_.push_back(bytes_);
        bytes_ += (packed_bytes(format, rows, cols) + 255) / 256 * 256;
      }
    }
    packed_ = device_memory().allocate(bytes_, "a test");
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      const Weight weight = raw_[i].weight();
      pack(weight, {0, weight.rows}, packed_.get() + offsets_[i]);
    }
    for (int64_t e = 0; e < sizes.experts; ++e) {
      host_.push_back(on_host(e));
      device_.push_back(on_device(e));
    }
  }

  const Sizes& sizes() const { return sizes_; }

  /// The weights of an op; everything else is left to the caller.
  Experts host_op() const {
    Experts op;
    op.experts = host_;
    op.shared = on_host(sizes_.experts);
    op.swiglu_limit = 3;
    return op;
  }
  Experts device_op() const {
    Experts op;
    op.experts = device_;
    op.shared = on_device(sizes_.experts);
    op.swiglu_limit = 3;
    return op;
  }

 private:
  ExpertWeights on_host(int64_t e) const {
    const RawMatrix* m = &raw_[static_cast<std::size_t>(3 * e)];
    return {m[0].weight(), m[1].weight(), m[2].weight()};
  }
  Weight packed(std::size_t i) const {
    const RawMatrix& m = raw_[i];
    return {m.format, m.rows, m.cols, packed_.get() + offsets_[i], nullptr};
  }
  ExpertWeights on_device(int64_t e) const {
    const auto i = static_cast<std::size_t>(3 * e);
    return {packed(i), packed(i + 1), packed(i + 2)};
  }

  Sizes sizes_;
  std::vector<RawMatrix> raw_;
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
  std::shared_ptr<std::byte> packed_;
  std::vector<ExpertWeights> host_, device_;
};

/// The rows of a step: Q8 activations, and the router's choice.
struct Batch {
  int64_t rows, k, hidden;
  std::vector<uint8_t> codes, scales;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  Batch(std::mt19937& random, const Sizes& sizes, int64_t rows_)
      : rows(rows_), k(sizes.k), hidden(sizes.hidden) {
    for (int64_t i = 0; i < rows * hidden; ++i)
      codes.push_back(static_cast<uint8_t>(uniform(random, 0, 1) << 7 | uniform(random, 0, 126)));
    for (int64_t i = 0; i < rows * hidden / 32; ++i)
      scales.push_back(static_cast<uint8_t>(uniform(random, 116, 119)));
    std::vector<int32_t> all(static_cast<std::size_t>(sizes.experts));
    for (std::size_t e = 0; e < all.size(); ++e)
      all[e] = static_cast<int32_t>(e);
    for (int64_t row = 0; row < rows; ++row) {
      std::shuffle(all.begin(), all.end(), random);
      std::vector<int32_t> chosen(all.begin(), all.begin() + k);
      std::sort(chosen.begin(), chosen.end());
      ids.insert(ids.end(), chosen.begin(), chosen.end());
      for (int64_t i = 0; i < k; ++i)
        weights.push_back(static_cast<float>(uniform(random, 1, 1000)) / 1000);
    }
  }

  /// Some of the rows, in the given order.
  Batch only(const std::vector<int64_t>& chosen) const {
    Batch some = *this;
    some.rows = std::ssize(chosen);
    const auto pick = [&](auto& values, int64_t width) {
      auto all = values;
      values.clear();
      for (const int64_t row : chosen)
        values.insert(values.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
    };
    pick(some.codes, hidden);
    pick(some.scales, hidden / 32);
    pick(some.ids, k);
    pick(some.weights, k);
    return some;
  }

  void operands(
      Experts& op,
      bf16* y,
      const uint8_t* code,
      const uint8_t* scale,
      const int32_t* id,
      const float* weight
  ) const {
    op.y = View<bf16, 2>(y, rows, hidden);
    op.x = {
        View<const uint8_t, 2>(code, rows, hidden),
        View<const uint8_t, 2>(scale, rows, hidden / 32)};
    op.ids = View<const int32_t, 2>(id, rows, k);
    op.weights = View<const float, 2>(weight, rows, k);
  }
};

std::vector<bf16> on_reference(const Layer& layer, const Batch& batch) {
  Machine machine;
  std::vector<bf16> y(static_cast<std::size_t>(batch.rows * batch.hidden));
  Experts op = layer.host_op();
  batch.operands(
      op, y.data(), batch.codes.data(), batch.scales.data(), batch.ids.data(), batch.weights.data()
  );
  ref_ops().experts(machine.host(), op);
  return y;
}

std::vector<bf16> on_device(const Layer& layer, const Batch& batch, ExpertTiles tiles) {
  Machine machine;
  DeviceArray<bf16> y(batch.rows * batch.hidden);
  y.poison();
  const DeviceArray<uint8_t> codes(batch.codes), scales(batch.scales);
  const DeviceArray<int32_t> ids(batch.ids);
  const DeviceArray<float> weights(batch.weights);
  Experts op = layer.device_op();
  batch.operands(op, y.data(), codes.data(), scales.data(), ids.data(), weights.data());
  experts_with(machine.device(), op, tiles);
  return y.read();
}

/// Rows of y that differ in any bit.
int64_t differing_rows(const std::vector<bf16>& a, const std::vector<bf16>& b, int64_t width) {
  int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); i += static_cast<std::size_t>(width))
    count += std::memcmp(&a[i], &b[i], static_cast<std::size_t>(width) * sizeof(bf16)) != 0;
  return count;
}

constexpr ExpertTiles kForms[] = {
    ExpertTiles::kNarrow,
    ExpertTiles::kWide32,
    ExpertTiles::kWide64,
    ExpertTiles::kWide128,
    ExpertTiles::kWide256};
constexpr double kTolerance = 3e-3;  // two roundings to bf16 and one to E4M3 may flip

void expect_parity(const Sizes& sizes, const std::vector<int64_t>& row_counts) {
  std::mt19937 random(7);
  const Layer layer(random, sizes);
  for (const int64_t rows : row_counts) {
    const Batch batch(random, sizes, rows);
    const std::vector<bf16> expected = on_reference(layer, batch);
    std::vector<bf16> first;
    for (const ExpertTiles tiles : kForms) {
      const std::vector<bf16> found = on_device(layer, batch, tiles);
      EXPECT_LT(relative_error(found, expected), kTolerance) << rows << " rows, "
                                                             << "form " << static_cast<int>(tiles);
      if (first.empty()) first = found;
      EXPECT_EQ(differing_rows(found, first, sizes.hidden), 0) << rows << " rows";
    }
  }
}

TEST(CudaExpertsTest, AgreesWithTheReference) {
  DI_NEEDS_GPU();
  expect_parity({.experts = 8, .k = 3, .hidden = 128, .inner = 64}, {1, 2, 9, 70, 300});
}

TEST(CudaExpertsTest, AgreesWithTheReferenceForOddWidths) {
  DI_NEEDS_GPU();
  expect_parity({.experts = 5, .k = 2, .hidden = 192, .inner = 96}, {1, 40});
  expect_parity({.experts = 1, .k = 1, .hidden = 32, .inner = 32}, {1, 17});
  expect_parity({.experts = 16, .k = 4, .hidden = 256, .inner = 128}, {3, 65});
}

TEST(CudaExpertsTest, AgreesWithTheReferenceForEitherFormat) {
  DI_NEEDS_GPU();
  expect_parity(
      {.experts = 4,
       .k = 2,
       .hidden = 320,
       .inner = 192,
       .routed = WeightFormat::kFp8,
       .shared = WeightFormat::kFp4},
      {5, 33}
  );
}

TEST(CudaExpertsTest, SumsLongRowsClosely) {
  DI_NEEDS_GPU();
  expect_parity({.experts = 2, .k = 1, .hidden = 5120, .inner = 256}, {3});
  expect_parity({.experts = 2, .k = 1, .hidden = 256, .inner = 2304}, {3});
}

TEST(CudaExpertsTest, ARowsBitsDoNotDependOnItsBatch) {
  DI_NEEDS_GPU();
  const Sizes sizes{.experts = 12, .k = 4, .hidden = 640, .inner = 320};
  std::mt19937 random(9);
  const Layer layer(random, sizes);
  const Batch batch(random, sizes, 600);
  const std::vector<bf16> all = on_device(layer, batch, ExpertTiles::kWide256);
  const auto rows_of_all = [&](const std::vector<int64_t>& rows) {
    std::vector<bf16> some;
    for (const int64_t row : rows)
      some.insert(
          some.end(), all.begin() + row * sizes.hidden, all.begin() + (row + 1) * sizes.hidden
      );
    return some;
  };
  std::vector<std::vector<int64_t>> choices = {{599}, {0}, {17, 3, 599, 100, 5}};
  for (const int64_t count : {64, 65, 250, 600}) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < count; ++i)
      rows.push_back((i * 7 + count) % 600);
    choices.push_back(rows);
  }
  for (const auto& rows : choices) {
    for (const ExpertTiles tiles : kForms) {
      const std::vector<bf16> found = on_device(layer, batch.only(rows), tiles);
      EXPECT_EQ(differing_rows(found, rows_of_all(rows), sizes.hidden), 0)
          << rows.size() << " rows, "
          << "form " << static_cast<int>(tiles);
    }
  }
}

TEST(CudaExpertsTest, AllRowsMayChooseTheSameExperts) {
  DI_NEEDS_GPU();
  const Sizes sizes{.experts = 40, .k = 2, .hidden = 256, .inner = 128};
  std::mt19937 random(10);
  const Layer layer(random, sizes);
  Batch batch(random, sizes, 333);
  for (int64_t row = 0; row < batch.rows; ++row) {
    batch.ids[static_cast<std::size_t>(2 * row)] = 7;
    batch.ids[static_cast<std::size_t>(2 * row + 1)] = 39;
  }
  const std::vector<bf16> expected = on_reference(layer, batch);
  for (const ExpertTiles tiles : kForms)
    EXPECT_LT(relative_error(on_device(layer, batch, tiles), expected), kTolerance);
}

TEST(CudaExpertsTest, ARowWithoutNumbersHarmsNoOther) {
  DI_NEEDS_GPU();
  const Sizes sizes{.experts = 6, .k = 3, .hidden = 256, .inner = 128};
  std::mt19937 random(11);
  const Layer layer(random, sizes);
  Batch batch(random, sizes, 50);
  for (const ExpertTiles tiles : kForms) {
    const std::vector<bf16> healthy = on_device(layer, batch, tiles);
    Batch sick = batch;
    std::fill_n(sick.codes.begin() + 20 * sizes.hidden, sizes.hidden, uint8_t{0x7f});
    sick.weights[static_cast<std::size_t>(31 * sizes.k)] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<bf16> found = on_device(layer, sick, tiles);
    for (int64_t row = 0; row < batch.rows; ++row) {
      const bool same = std::memcmp(
                            &found[static_cast<std::size_t>(row * sizes.hidden)],
                            &healthy[static_cast<std::size_t>(row * sizes.hidden)],
                            static_cast<std::size_t>(sizes.hidden) * sizeof(bf16)
                        ) == 0;
      EXPECT_EQ(same, row != 20 && row != 31) << row;
    }
  }
}

TEST(CudaExpertsTest, SlotsWithoutAnExpertAddNothing) {
  DI_NEEDS_GPU();
  const Sizes sizes{.experts = 6, .k = 3, .hidden = 256, .inner = 128};
  std::mt19937 random(12);
  const Layer layer(random, sizes);
  const Batch batch(random, sizes, 20);
  Batch fewer = batch;
  for (int64_t row = 0; row < batch.rows; row += 2)
    fewer.ids[static_cast<std::size_t>(row * 3)] = -1;
  Batch zero = batch;  // weight 0 gives parts of exactly 0
  for (int64_t row = 0; row < batch.rows; row += 2)
    zero.weights[static_cast<std::size_t>(row * 3)] = 0;
  for (const ExpertTiles tiles : kForms) {
    EXPECT_EQ(
        differing_rows(on_device(layer, fewer, tiles), on_device(layer, zero, tiles), sizes.hidden),
        0
    );
  }
}

TEST(CudaExpertsTest, RefusesWhatItCannotRead) {
  DI_NEEDS_GPU();
  const Sizes sizes{.experts = 4, .k = 2, .hidden = 128, .inner = 64};
  std::mt19937 random(13);
  const Layer layer(random, sizes);
  Machine machine;
  Experts op = layer.device_op();
  op.y = View<bf16, 2>(nullptr, 1, sizes.hidden);
  op.ids = View<const int32_t, 2>(nullptr, 1, sizes.k);
  std::vector<ExpertWeights> moved(op.experts.begin(), op.experts.end());
  moved.back().w2.data += 256;
  op.experts = moved;
  EXPECT_THROW(experts(machine.device(), op), Error);
  op.experts = layer.host_op().experts;
  EXPECT_THROW(experts(machine.device(), op), Error);
}

TEST(CudaExpertListsTest, SortByExpertAndThenByRow) {
  DI_NEEDS_GPU();
  std::mt19937 random(14);
  for (const int64_t rows : {1, 5, 171, 2000}) {
    constexpr int64_t kExperts = 100;
    constexpr int64_t kSelected = 6;
    constexpr int64_t kTileRows = 16;
    std::vector<int32_t> ids;
    std::vector<float> weights;
    std::vector<std::vector<int32_t>> of_expert(kExperts);
    for (int64_t i = 0; i < rows * kSelected; ++i) {
      const int32_t id = uniform(random, -1, kExperts - 1);
      ids.push_back(id);
      weights.push_back(static_cast<float>(i));
      if (id >= 0) {
        of_expert[static_cast<std::size_t>(id)].push_back(
            static_cast<int32_t>(i / kSelected * (kSelected + 1) + i % kSelected)
        );
      }
    }
    Machine machine;
    const DeviceArray<int32_t> device_ids(ids);
    const DeviceArray<float> device_weights(weights);
    Exec& exec = machine.device();
    const ExpertLists lists = take_lists(exec.scratch, rows, kSelected, kExperts, kTileRows);
    list_experts(
        exec,
        View<const int32_t, 2>(device_ids.data(), rows, kSelected),
        View<const float, 2>(device_weights.data(), rows, kSelected),
        kExperts,
        kTileRows,
        lists
    );
    machine.wait();
    const auto read = [&](auto* from, int64_t count) {
      std::vector<std::remove_pointer_t<decltype(from)>> values(static_cast<std::size_t>(count));
      check(
          cudaMemcpy(values.data(), from, values.size() * sizeof(*from), cudaMemcpyDefault), "read"
      );
      return values;
    };
    const auto target = read(lists.target, rows * (kSelected + 1));
    const int32_t num_tiles = read(lists.num_tiles, 1)[0];
    ASSERT_LE(num_tiles, lists.max_tiles);
    std::vector<std::vector<int32_t>> found(kExperts + 1);
    for (const TokenTile& tile : read(lists.tiles, num_tiles)) {
      EXPECT_GT(tile.count, 0);
      EXPECT_LE(tile.count, kTileRows);
      auto& list = found[static_cast<std::size_t>(tile.expert)];
      list.insert(list.end(), &target[tile.begin], &target[tile.begin] + tile.count);
    }
    for (std::size_t e = 0; e < kExperts; ++e)
      EXPECT_EQ(found[e], of_expert[e]) << e;
    ASSERT_EQ(std::ssize(found[kExperts]), rows);
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(found[kExperts][static_cast<std::size_t>(row)], row * (kSelected + 1) + kSelected);
    const auto position = read(lists.position, rows * (kSelected + 1));
    for (int32_t i = 0; i < std::ssize(position); ++i) {
      const int64_t row = i / (kSelected + 1);
      const int64_t slot = i % (kSelected + 1);
      const bool listed =
          slot == kSelected || ids[static_cast<std::size_t>(row * kSelected + slot)] >= 0;
      const int32_t at = position[static_cast<std::size_t>(i)];
      EXPECT_EQ(at >= 0, listed);
      if (!listed) continue;
      EXPECT_EQ(target[static_cast<std::size_t>(at)], i);
    }
    for (const int32_t counter : read(lists.counters, kWorkQueues + lists.max_tiles))
      EXPECT_EQ(counter, 0);
  }
}

}  // namespace
}  // namespace di::ops::cuda
