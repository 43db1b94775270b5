// The experts in canonical arithmetic: the reference's bits.
#include <algorithm>

#include <gtest/gtest.h>

#include "ops/cuda/canonical_testing.h"

namespace di::ops::cuda {
namespace {

using cpu::testing::Q8Rows;
using cpu::testing::RawWeight;
using cpu::testing::uniform;
using testing::different_bits;
using testing::Machine;
using testing::SharedArray;

struct Shape {
  int64_t experts, k, hidden, inner;
};

/// All experts of a layer, on the device one after another as a loader places them; FP4, and the
/// shared one FP8.
class Layer {
 public:
  Layer(std::mt19937& random, const Shape& shape) {
    for (int64_t e = 0; e <= shape.experts; ++e) {
      const WeightFormat format = e == shape.experts ? WeightFormat::kFp8 : WeightFormat::kFp4;
      for (const bool down : {false, false, true}) {
        raw_.push_back(cpu::testing::random_weight(
            random, format, down ? shape.hidden : shape.inner, down ? shape.inner : shape.hidden
        ));
        for (uint8_t& scale : raw_.back().scales)
          scale = static_cast<uint8_t>(uniform(random, 116, 120));
        places_.push_back(bytes_);
        bytes_ += (bytes_of(raw_.back()) + 255) / 256 * 256;
      }
    }
    packed_ = device_memory().allocate(bytes_, "a test");
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      const Weight w = raw_[i].weight();
      canonical_cuda_ops().pack(w, {0, w.rows}, packed_.get() + places_[i]);
    }
  }

  std::vector<ExpertWeights> experts(bool on_device) const {
    std::vector<ExpertWeights> experts;
    for (std::size_t i = 0; i < raw_.size(); i += 3)
      experts.push_back({weight(i, on_device), weight(i + 1, on_device), weight(i + 2, on_device)});
    return experts;
  }

 private:
  static int64_t bytes_of(const RawWeight& w) {
    return canonical_cuda_ops().packed_bytes(w.format, w.rows, w.cols);
  }
  Weight weight(std::size_t i, bool on_device) const {
    const RawWeight& w = raw_[i];
    if (!on_device) return w.weight();
    return {w.format, w.rows, w.cols, packed_.get() + places_[i], nullptr};
  }

  std::vector<RawWeight> raw_;
  std::vector<int64_t> places_;
  int64_t bytes_ = 0;
  std::shared_ptr<std::byte> packed_;
};

/// k different experts for each row, ascending.
std::vector<int32_t> choose(std::mt19937& random, const Shape& shape, int64_t rows) {
  std::vector<int32_t> all(static_cast<std::size_t>(shape.experts));
  for (std::size_t e = 0; e < all.size(); ++e)
    all[e] = static_cast<int32_t>(e);
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    std::shuffle(all.begin(), all.end(), random);
    ids.insert(ids.end(), all.begin(), all.begin() + shape.k);
    std::sort(ids.end() - shape.k, ids.end());
  }
  return ids;
}

TEST(CanonicalOnCuda, RunsExpertsLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  std::mt19937 random(5);
  for (const Shape shape : {Shape{16, 4, 256, 128}, {5, 2, 96, 32}, {8, 8, 64, 160}}) {
    const Layer layer(random, shape);
    const std::vector<ExpertWeights> host = layer.experts(false);
    const std::vector<ExpertWeights> device = layer.experts(true);
    for (const int64_t rows : {1, 2, 17, 60, 1030}) {
      if (rows > 1000 && shape.hidden != 64) continue;
      Q8Rows x = cpu::testing::random_q8(random, rows, shape.hidden);
      for (uint8_t& scale : x.scales)
        scale = static_cast<uint8_t>(uniform(random, 116, 120));
      const SharedArray<uint8_t> codes(x.codes), scales(x.scales);
      const SharedArray<int32_t> ids(choose(random, shape, rows));
      std::vector<float> shares(static_cast<std::size_t>(ids.size()));
      for (float& share : shares)
        share = static_cast<float>(uniform(random, 1, 1000)) / 1000;
      const SharedArray<float> weights(shares);
      const SharedArray<bf16> y[2] = {
          SharedArray<bf16>(rows * shape.hidden), SharedArray<bf16>(rows * shape.hidden)};
      for (const int i : {0, 1}) {
        const std::vector<ExpertWeights>& all = i == 0 ? host : device;
        const Experts op{
            .y = y[i].rows(rows),
            .x = {codes.rows(rows), scales.rows(rows)},
            .ids = ids.rows(rows),
            .weights = weights.rows(rows),
            .experts = std::span(all).first(all.size() - 1),
            .shared = all.back(),
            .swiglu_limit = 10};
        if (i == 0) {
          ref_ops().experts(machine.host(), op);
        } else {
          canonical_cuda_ops().experts(machine.device(), op);
        }
      }
      machine.wait();
      EXPECT_EQ(different_bits(y[1], y[0]), 0) << rows << " rows, " << shape.experts << " experts";
    }
  }
}

}  // namespace
}  // namespace di::ops::cuda
