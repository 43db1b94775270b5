#include "bench/ops_bench.h"

#include <algorithm>
#include <memory>
#include <random>
#include <span>

#include <fmt/format.h>

#include "bench/attention_bench.h"
#include "bench/op_runner.h"
#include "bench/rowwise_bench.h"
#include "bench/synthetic.h"
#include "ops/ops.h"

namespace di::bench {
namespace {

using ops::WeightFormat;

/// A linear layer of the model.
struct Layer {
  const char* name;
  WeightFormat format;
  int64_t n, k;
  bool quantised;  // LinearQ8, not Linear
  int64_t groups = 1;
};

constexpr Layer kLayers[] = {
    {"linear_q8.fp4", WeightFormat::kFp4, 2304, 5120, true},
    {"linear_q8.fp8", WeightFormat::kFp8, 8192, 1280, true},
    {"linear.fp8", WeightFormat::kFp8, 8192, 4096, false, 8},
    {"linear.bf16", WeightFormat::kBf16, 1024, 5120, false},
    {"linear.f32", WeightFormat::kF32, 384, 5120, false},
};

constexpr int64_t kHidden = 5120;
constexpr int64_t kInner = 2304;
constexpr int64_t kTopK = 6;

/// Quantised activations.
struct Q8Rows {
  int64_t rows, cols;
  std::vector<uint8_t> codes, scales;

  Q8Rows(const ops::OpTable& table, ops::Exec& exec, const std::vector<bf16>& x, int64_t width)
      : rows(static_cast<int64_t>(x.size()) / width),
        cols(width),
        codes(x.size()),
        scales(x.size() / ops::kScaleGroup) {
    table.quantize_fp8(
        exec,
        {View<uint8_t, 2>(codes.data(), rows, cols),
         View<uint8_t, 2>(scales.data(), rows, cols / ops::kScaleGroup),
         View<const bf16, 2>(x.data(), rows, cols)}
    );
  }
  ops::Q8View view() const {
    return {
        View<const uint8_t, 2>(codes.data(), rows, cols),
        View<const uint8_t, 2>(scales.data(), rows, cols / ops::kScaleGroup)};
  }
};

class Run {
 public:
  explicit Run(OpRunner& runner)
      : runner_(runner),
        options_(runner.options()),
        table_(runner.table()),
        exec_(runner.exec()),
        random_(runner.random()) {}

  void all() {
    for (const Layer& layer : kLayers) {
      if (runner_.wanted(layer.name)) linear(layer);
    }
    if (runner_.wanted("experts")) experts();
  }

 private:
  int64_t copies_of(int64_t bytes) const { return std::max<int64_t>(1, options_.bytes / bytes); }

  void linear(const Layer& layer) {
    const SyntheticWeight raw = synthetic_weight(random_, layer.format, layer.n, layer.k);
    const int64_t bytes = table_.packed_bytes(layer.format, layer.n, layer.k);
    const PackedCopies copies(table_, raw, copies_of(bytes));
    for (const int64_t rows : options_.rows) {
      const int64_t width = layer.groups * layer.k;
      const std::vector<bf16> x = synthetic_activations(random_, rows * width);
      const Q8Rows q8(table_, exec_, x, width);
      std::vector<bf16> y(static_cast<std::size_t>(rows * layer.n));
      const View<bf16, 2> out(y.data(), rows, layer.n);
      const OpCase what{
          layer.name,
          fmt::format("{}x{}", layer.n, layer.k),
          rows,
          static_cast<double>(bytes),
          static_cast<double>(rows * layer.n * layer.k)};
      runner_.measure(what, copies.count(), [&](int64_t i) {
        if (layer.quantised) {
          table_.linear_q8(exec_, {out, q8.view(), copies[i]});
        } else {
          const View<const bf16, 2> in(x.data(), rows, width);
          table_.linear(
              exec_, {.y = out, .y_f32 = {}, .x = in, .w = copies[i], .groups = layer.groups}
          );
        }
      });
    }
  }

  /// FP4 experts and an FP8 shared one; a row uses kTopK consecutive experts, drawn at random.
  void experts() {
    const SyntheticWeight up = synthetic_weight(random_, WeightFormat::kFp4, kInner, kHidden);
    const SyntheticWeight down = synthetic_weight(random_, WeightFormat::kFp4, kHidden, kInner);
    const int64_t expert_bytes = 3 * table_.packed_bytes(WeightFormat::kFp4, kInner, kHidden);
    const int64_t count = std::max(2 * kTopK, copies_of(expert_bytes));
    const PackedCopies w1(table_, up, count), w3(table_, up, count), w2(table_, down, count);
    const SyntheticWeight up8 = synthetic_weight(random_, WeightFormat::kFp8, kInner, kHidden);
    const SyntheticWeight down8 = synthetic_weight(random_, WeightFormat::kFp8, kHidden, kInner);
    const PackedCopies s1(table_, up8, 1), s3(table_, up8, 1), s2(table_, down8, 1);
    std::vector<ops::ExpertWeights> weights;
    for (int64_t e = 0; e < count; ++e)
      weights.push_back({w1[e], w3[e], w2[e]});
    const ops::ExpertWeights shared{s1[0], s3[0], s2[0]};
    for (const int64_t rows : options_.rows)
      experts_rows(
          rows,
          weights,
          shared,
          static_cast<double>(expert_bytes),
          static_cast<double>(s1.bytes() + s3.bytes() + s2.bytes())
      );
  }

  void experts_rows(
      int64_t rows,
      std::span<const ops::ExpertWeights> weights,
      const ops::ExpertWeights& shared,
      double expert_bytes,
      double shared_bytes
  ) {
    const auto count = static_cast<int64_t>(weights.size());
    const std::vector<bf16> x = synthetic_activations(random_, rows * kHidden);
    const Q8Rows q8(table_, exec_, x, kHidden);
    std::vector<bf16> y(x.size());
    std::vector<int32_t> ids;
    std::vector<bool> used(weights.size());
    for (int64_t row = 0; row < rows; ++row) {
      const auto first = static_cast<int64_t>(random_()) % (count - kTopK + 1);
      for (int64_t i = first; i < first + kTopK; ++i) {
        ids.push_back(static_cast<int32_t>(i));
        used[static_cast<std::size_t>(i)] = true;
      }
    }
    const std::vector<float> routing(ids.size(), 0.4f);
    const auto active = static_cast<double>(std::count(used.begin(), used.end(), true));
    const OpCase what{
        "experts",
        fmt::format("{} experts {}x{}, top {}", count, kInner, kHidden, kTopK),
        rows,
        active * expert_bytes + shared_bytes,
        static_cast<double>(rows * (kTopK + 1) * 3 * kInner * kHidden)};
    runner_.measure(what, 1, [&](int64_t) {
      table_.experts(
          exec_,
          {.y = View<bf16, 2>(y.data(), rows, kHidden),
           .x = q8.view(),
           .ids = View<const int32_t, 2>(ids.data(), rows, kTopK),
           .weights = View<const float, 2>(routing.data(), rows, kTopK),
           .experts = weights,
           .shared = shared,
           .swiglu_limit = 10.0f}
      );
    });
  }

  OpRunner& runner_;
  const OpsBenchOptions& options_;
  const ops::OpTable& table_;
  ops::Exec& exec_;
  std::mt19937& random_;
};

}  // namespace

void bench_ops(const OpsBenchOptions& options, const Emit& emit) {
  OpRunner runner(options, emit);
  Run(runner).all();
  bench_attention(runner);
  bench_rowwise(runner);
}

}  // namespace di::bench
