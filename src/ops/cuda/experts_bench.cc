// The experts at the real sizes: a layer of 384 experts, six for each row, and the shared one.
#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/packing.h"

namespace di::ops::cuda {
namespace {

constexpr int64_t kHidden = 5120;
constexpr int64_t kInner = 2304;
constexpr int64_t kExperts = 384;
constexpr int64_t kSelected = 6;
constexpr int kRoutings = 8;  // calls take turns among them

/// `values` on the device.
template <class T>
std::shared_ptr<std::byte> upload(const std::vector<T>& values) {
  auto bytes = device_memory().allocate(std::ssize(values) * sizeof(T), "a benchmark");
  check(
      cudaMemcpy(bytes.get(), values.data(), values.size() * sizeof(T), cudaMemcpyDefault), "upload"
  );
  return bytes;
}

std::vector<uint8_t> random_bytes(std::mt19937& random, int64_t count, int low, int high) {
  std::vector<uint8_t> bytes(static_cast<std::size_t>(count));
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>(low + static_cast<int>(random() % (high - low + 1)));
  return bytes;
}

/// Bytes of an expert's three matrices, packed one after another.
int64_t expert_bytes(WeightFormat format) {
  return 3 * packed_bytes(format, kInner, kHidden);
}

/// The weights of a layer. All routed experts hold the same values, each at its own place.
class Layer {
 public:
  Layer()
      : packed_(device_memory().allocate(
            kExperts * expert_bytes(WeightFormat::kFp4) + expert_bytes(WeightFormat::kFp8),
            "a benchmark"
        )) {
    const int64_t routed = expert_bytes(WeightFormat::kFp4);
    std::mt19937 random(1);
    fill(random, WeightFormat::kFp4, packed_.get());
    for (int64_t e = 1; e < kExperts; ++e) {
      check(
          cudaMemcpy(
              packed_.get() + e * routed,
              packed_.get(),
              static_cast<std::size_t>(routed),
              cudaMemcpyDefault
          ),
          "copy of an expert"
      );
    }
    fill(random, WeightFormat::kFp8, packed_.get() + kExperts * routed);
    for (int64_t e = 0; e < kExperts; ++e)
      experts_.push_back(weights(WeightFormat::kFp4, packed_.get() + e * routed));
  }

  Experts op() const {
    Experts op;
    op.experts = experts_;
    op.shared =
        weights(WeightFormat::kFp8, packed_.get() + kExperts * expert_bytes(WeightFormat::kFp4));
    op.swiglu_limit = 10;
    return op;
  }

 private:
  static void fill(std::mt19937& random, WeightFormat format, std::byte* to) {
    // Codes of E4M3 that are no NaN, and any of E2M1.
    const int highest = format == WeightFormat::kFp8 ? 0x7e : 0xff;
    for (const bool down : {false, false, true}) {
      const int64_t rows = down ? kHidden : kInner;
      const int64_t cols = down ? kInner : kHidden;
      const auto data = random_bytes(random, data_bytes(format, rows, cols), 0, highest);
      const auto scales = random_bytes(random, scale_bytes(format, rows, cols), 112, 116);
      pack(
          {format, rows, cols, reinterpret_cast<const std::byte*>(data.data()), scales.data()},
          {0, rows},
          to
      );
      to += packed_bytes(format, rows, cols);
    }
  }

  static ExpertWeights weights(WeightFormat format, const std::byte* at) {
    const int64_t bytes = packed_bytes(format, kInner, kHidden);
    return {
        {format, kInner, kHidden, at, nullptr},
        {format, kInner, kHidden, at + bytes, nullptr},
        {format, kHidden, kInner, at + 2 * bytes, nullptr}};
  }

  std::shared_ptr<std::byte> packed_;
  std::vector<ExpertWeights> experts_;
};

/// Rows and what a router made of them.
struct Step {
  int64_t rows, k;
  bool uniform;
  double mean_experts = 0;  ///< distinct ones of a call, on average
  std::shared_ptr<std::byte> codes, scales, ids, weights, y;

  /// Uniform random choices, or a layer of one expert, number i of all in call i.
  Step(int64_t rows_, int64_t k_, bool uniform_) : rows(rows_), k(k_), uniform(uniform_) {
    std::mt19937 random(static_cast<unsigned>(rows));
    codes = upload(random_bytes(random, rows * kHidden, 0, 0x7e));
    scales = upload(random_bytes(random, rows * kHidden / 32, 112, 116));
    std::vector<int32_t> chosen;
    for (int routing = 0; routing < kRoutings; ++routing) {
      std::set<int32_t> distinct;
      for (int64_t row = 0; row < rows; ++row) {
        std::set<int32_t> of_row;
        while (std::ssize(of_row) < k)
          of_row.insert(uniform ? static_cast<int32_t>(random() % kExperts) : 0);
        chosen.insert(chosen.end(), of_row.begin(), of_row.end());
        distinct.insert(of_row.begin(), of_row.end());
      }
      mean_experts += static_cast<double>(distinct.size()) / kRoutings;
    }
    ids = upload(chosen);
    weights = upload(std::vector<float>(static_cast<std::size_t>(rows * k), 0.25f));
    y = device_memory().allocate(rows * kHidden * 2, "a benchmark");
  }

  void set(Experts& op, int routing) const {
    op.y = View<bf16, 2>(reinterpret_cast<bf16*>(y.get()), rows, kHidden);
    op.x = {
        View<const uint8_t, 2>(reinterpret_cast<uint8_t*>(codes.get()), rows, kHidden),
        View<const uint8_t, 2>(reinterpret_cast<uint8_t*>(scales.get()), rows, kHidden / 32)};
    op.ids =
        View<const int32_t, 2>(reinterpret_cast<int32_t*>(ids.get()) + routing * rows * k, rows, k);
    op.weights = View<const float, 2>(reinterpret_cast<float*>(weights.get()), rows, k);
  }
};

using Call = void (*)(Exec&, const Experts&);

/// Measures `call` for the step.
BenchResult measure_step(
    const Layer& layer, const Step& step, const std::string& shape, const Call& call
) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "stream");
  ThreadPool pool(1);
  Arena scratch(device_memory());
  Exec exec{pool, scratch, nullptr, stream};
  const Experts all = layer.op();
  Experts op = all;
  const double microseconds = measure(stream, kRoutings, [&](int i) {
    step.set(op, i % kRoutings);
    if (!step.uniform) op.experts = all.experts.subspan(i % kRoutings, 1);
    call(exec, op);
  });
  cudaStreamDestroy(stream);
  return {
      .op = "experts",
      .shape = shape,
      .rows = step.rows,
      .microseconds = microseconds,
      .bytes = step.mean_experts * static_cast<double>(expert_bytes(WeightFormat::kFp4)) +
               static_cast<double>(expert_bytes(WeightFormat::kFp8)),
      .flops = 6.0 * static_cast<double>(kHidden * kInner * step.rows * (step.k + 1))};
}

}  // namespace

void bench_experts(const BenchReport& report) {
  const Layer layer;
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096, 16384})
    report(measure_step(layer, Step(rows, kSelected, true), "384 experts, top 6, + shared", experts)
    );
  for (const int64_t rows : {1024, 4096})
    report(measure_step(layer, Step(rows, 1, false), "one expert, + shared", experts));
}

}  // namespace di::ops::cuda
