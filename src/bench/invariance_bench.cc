#include "bench/invariance_bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "bench/free_linear.h"
#include "bench/step_bytes.h"
#include "bench/synthetic.h"
#include "bench/timing.h"
#include "config/known_models.h"

namespace di::bench {
namespace {

using ops::WeightFormat;

/// A matrix of a layer.
struct Matrix {
  const char* name;
  WeightFormat format;
  int64_t n, k;
  bool quantised;       // activations as Q8
  int64_t count = 1;    // in a layer, or in an expert
  bool routed = false;  // part of a routed expert
};

std::vector<Matrix> matrices_of(const ModelConfig& config) {
  const AttentionConfig& a = config.attention;
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.moe.moe_intermediate_size;
  return {
      {"wq_a", WeightFormat::kFp8, a.q_lora_rank, hidden, true},
      {"wq_b", WeightFormat::kFp8, a.query_size(), a.q_lora_rank, true},
      {"wkv", WeightFormat::kFp8, a.head_dim, hidden, true},
      {"wo_a", WeightFormat::kFp8, a.output_size(), a.group_input_size(), false},
      {"wo_b", WeightFormat::kFp8, hidden, a.output_size(), true},
      {"gate", WeightFormat::kBf16, config.moe.n_routed_experts, hidden, false},
      {"shared_up", WeightFormat::kFp8, inner, hidden, true, 2},
      {"shared_down", WeightFormat::kFp8, hidden, inner, true},
      {"expert_up", WeightFormat::kFp4, inner, hidden, true, 2, true},
      {"expert_down", WeightFormat::kFp4, hidden, inner, true, 1, true}};
}

/// Activations in both forms.
struct Rows {
  Rows(const ops::OpTable& table, ops::Exec& exec, std::vector<bf16> values, int64_t width)
      : plain(std::move(values)),
        count(std::ssize(plain) / width),
        cols(width),
        codes(plain.size()),
        scales(plain.size() / ops::kScaleGroup) {
    table.quantize_fp8(
        exec,
        {View<uint8_t, 2>(codes.data(), count, cols),
         View<uint8_t, 2>(scales.data(), count, cols / ops::kScaleGroup),
         View<const bf16, 2>(plain.data(), count, cols)}
    );
  }
  ops::Q8View q8() const {
    return {
        View<const uint8_t, 2>(codes.data(), count, cols),
        View<const uint8_t, 2>(scales.data(), count, cols / ops::kScaleGroup)};
  }

  std::vector<bf16> plain;
  int64_t count, cols;
  std::vector<uint8_t> codes, scales;
};

/// Seconds of one product, or of many.
struct Prices {
  double ours = 0;
  double fixed = 0;
  double free = 0;
  double best_fixed = 0;  ///< of those that are the same in any batch
  double best = 0;        ///< of all

  void add(double times, const Prices& other) {
    ours += times * other.ours;
    fixed += times * other.fixed;
    free += times * other.free;
    best_fixed += times * other.best_fixed;
    best += times * other.best;
  }
};

class InvarianceBench {
 public:
  InvarianceBench(const InvarianceBenchOptions& options, const Emit& emit)
      : options_(options),
        emit_(emit),
        pool_(options.threads),
        table_(ops::cpu_ops(best_isa(detect_cpu()))) {
    bytes_.experts = config_.moe.n_routed_experts;
    bytes_.experts_per_token = config_.moe.num_experts_per_tok;
  }

  void run() {
    for (const Matrix& matrix : matrices_of(config_))
      run(matrix);
    for (const int64_t rows : options_.rows)
      report("layer", "all of them", rows, rows, layer_[rows]);
  }

 private:
  void run(const Matrix& matrix) {
    const SyntheticWeight raw = synthetic_weight(random_, matrix.format, matrix.n, matrix.k);
    const int64_t bytes = table_.packed_bytes(matrix.format, matrix.n, matrix.k);
    const PackedCopies copies(table_, raw, std::max<int64_t>(1, options_.bytes / bytes));
    for (const int64_t rows : options_.rows) {
      const auto step_rows = static_cast<double>(rows);
      const double experts = bytes_.expected_experts(step_rows);
      const double share =
          step_rows * static_cast<double>(config_.moe.num_experts_per_tok) / experts;
      const int64_t own = matrix.routed ? std::max<int64_t>(1, std::llround(share)) : rows;
      const Prices prices = measure(matrix, copies, own);
      report(matrix.name, fmt::format("{}x{}", matrix.n, matrix.k), rows, own, prices);
      const double times = static_cast<double>(matrix.count) * (matrix.routed ? experts : 1);
      layer_[rows].add(times, prices);
    }
  }

  Prices measure(const Matrix& matrix, const PackedCopies& copies, int64_t count) {
    const Rows rows(table_, exec_, synthetic_activations(random_, count * matrix.k), matrix.k);
    const std::vector<bf16> free_rows = matrix.quantised ? dequantised(rows.q8()) : rows.plain;
    std::vector<bf16> y(static_cast<std::size_t>(count * matrix.n));
    const View<bf16, 2> out(y.data(), count, matrix.n);
    const auto ours = [&](int64_t i) {
      if (matrix.quantised) {
        table_.linear_q8(exec_, {out, rows.q8(), copies[i]});
      } else {
        const View<const bf16, 2> in(rows.plain.data(), count, matrix.k);
        table_.linear(exec_, {.y = out, .y_f32 = {}, .x = in, .w = copies[i]});
      }
    };
    const auto in_order = [&](SumOrder order) {
      return time_over(copies.count(), [&](int64_t i) {
        free_linear(exec_, {y.data(), free_rows.data(), count, copies[i], order});
      });
    };
    Prices prices;
    prices.ours = time_over(copies.count(), ours);
    prices.fixed = in_order(SumOrder::kFixed);
    prices.free = in_order(SumOrder::kFree);
    prices.best_fixed = std::min(prices.ours, prices.fixed);
    prices.best = std::min(prices.best_fixed, prices.free);
    return prices;
  }

  /// Seconds of one call. A sample goes over a few copies, none of which a cache still holds.
  template <class Call>
  double time_over(int64_t copies, const Call& call) const {
    const int64_t calls = std::min<int64_t>(copies, 4);
    int64_t next = 0;
    const Times times = time_calls({.seconds = options_.seconds, .least_samples = 5}, [&] {
      for (int64_t i = 0; i < calls; ++i)
        call(next++ % copies);
    });
    return times.best_s / static_cast<double>(calls);
  }

  void report(
      const std::string& name,
      const std::string& shape,
      int64_t rows,
      int64_t own,
      const Prices& prices
  ) {
    emit_(Json::Object{
        {"name", "invariance/" + name},
        {"backend", table_.name},
        {"isa", table_.isa},
        {"threads", pool_.num_threads()},
        {"rows", rows},
        {"matrix_rows", own},
        {"shape", shape},
        {"us", prices.ours * 1e6},
        {"fixed_us", prices.fixed * 1e6},
        {"free_us", prices.free * 1e6},
        {"batch_cost", prices.best_fixed / prices.best - 1},
        {"exact_cost", prices.ours / prices.best_fixed - 1}});
  }

  const InvarianceBenchOptions& options_;
  const Emit& emit_;
  const ModelConfig config_ = v41_flash_config();
  StepBytes bytes_;
  ThreadPool pool_;
  const ops::OpTable& table_;
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
  std::mt19937 random_{1};
  std::map<int64_t, Prices> layer_;  // by rows
};

}  // namespace

void bench_invariance(const InvarianceBenchOptions& options, const Emit& emit) {
  if (!has_free_linear()) {
    throw Error(
        ErrorCode::kUnsupported,
        "bench invariance compares with a kernel that needs AVX-512 BF16, which this processor "
        "lacks"
    );
  }
  InvarianceBench(options, emit).run();
}

}  // namespace di::bench
