// Layers of the real width on the device.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "bench/cuda/device_bench.h"
#include "bench/expert_union.h"
#include "bench/step_bytes.h"
#include "bench/synthetic_model.h"
#include "model/flops.h"
#include "model/placed_step.h"
#include "ops/cuda/benchmarks.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_events.h"
#include "ops/place.h"

namespace di::bench::cuda {
namespace {

constexpr int64_t kWarmRows = cache::kBlockTokens + cache::kRollbackTokens;

/// Sequences whose caches hold one warm block over and over: what they hold does not change what is
/// read.
class Sequences {
 public:
  Sequences(const SyntheticModel& synthetic, int64_t count, int64_t rows, int64_t context)
      : rows_(rows),
        context_(context),
        own_blocks_(1 + (rows + cache::kBlockTokens - 1) / cache::kBlockTokens),
        cache_(
            cache::make_layout(synthetic.model.config),
            count * own_blocks_ + 1,
            count,
            ops::cuda_ops().memory()
        ) {
    for (int64_t i = 0; i < context + rows + count; ++i)
      ids_.push_back(static_cast<int32_t>((i * 7 + 1) % synthetic.model.config.vocab_size));
    for (int64_t i = 0; i < count; ++i) {
      states_.emplace_back(cache_);
      states_.back().reserve_tokens((own_blocks_ + (i == 0 ? 1 : 0)) * cache::kBlockTokens);
      tables_.push_back(table_of(states_.back()));
    }
  }

  /// Fills the first sequence's window and a block, and gives all others the same window. Places
  /// tokens and tables in the scratch of `exec`, where they stay.
  void warm_up(const model::Model& model, const ops::OpTable& ops, ops::Exec& exec) {
    tokens_ = ops::place(exec, ids_).data;
    for (const std::vector<int32_t>& table : tables_)
      placed_tables_.push_back(ops::place(exec, table).data);
    const Arena::Scope scope(exec.scratch);
    model::Step step;
    step.sequences.push_back(rows_of(0, 0, kWarmRows));
    step.sequences[0].block_table = ops::place(exec, states_[0].block_table()).data;
    forward(model, step, cache_, ops, exec);
    for (const cache::SequenceState& state : states_) {
      if (state.slot() == states_[0].slot()) continue;
      cache_.copy_slot(
          static_cast<int32_t>(states_[0].slot()), static_cast<int32_t>(state.slot()), exec.stream
      );
    }
  }

  model::Step step() const {
    model::Step step;
    for (std::size_t i = 0; i < states_.size(); ++i)
      step.sequences.push_back(rows_of(i, context_, rows_));
    return step;
  }

  cache::KvCache& cache() { return cache_; }

 private:
  std::vector<int32_t> table_of(const cache::SequenceState& state) const {
    std::vector<int32_t> table(
        static_cast<std::size_t>(context_ / cache::kBlockTokens), states_[0].block_table()[0]
    );
    table.insert(table.end(), state.block_table().begin(), state.block_table().end());
    return table;
  }

  model::SequenceInput rows_of(std::size_t i, int64_t start, int64_t rows) const {
    model::SequenceInput input;
    input.tokens = {tokens_ + i, static_cast<std::size_t>(start + rows)};
    input.start = start;
    input.slot = states_[i].slot();
    input.block_table = placed_tables_[i];
    input.logits = model::LogitRows::kNone;
    return input;
  }

  int64_t rows_;
  int64_t context_;
  int64_t own_blocks_;
  cache::KvCache cache_;
  std::vector<int32_t> ids_;
  std::vector<cache::SequenceState> states_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<const int32_t*> placed_tables_;
  const int32_t* tokens_ = nullptr;
};

/// Seconds by op. Launches must have run ahead of the device, else gaps are counted.
std::map<std::string, double> times_of(const ops::cuda::OpEvents& events) {
  std::map<std::string, double> times;
  const auto& marks = events.marks();
  marks.back().end.wait();
  for (std::size_t i = 1; i < marks.size(); ++i)
    times[marks[i].op] += marks[i].end.seconds_since(marks[i - 1].end);
  return times;
}

class LayerBench {
 public:
  LayerBench(const LayerOptions& options, const Emit& emit)
      : options_(options),
        emit_(emit),
        ops_(options.canonical ? ops::canonical_cuda_ops() : ops::cuda_ops()),
        pool_(0),
        exec_(pool_, ops_.memory()),
        read_rate_(ops::cuda::measured_read_rate(exec_->stream)),
        synthetic_(synthetic_model(options.shape, ops_, pool_, {.num_layers = options.layers})) {}

  /// `count` sequences of `rows` new rows each.
  void run(int64_t count, int64_t rows) {
    const Arena::Scope scope(exec_->scratch);
    Sequences sequences(synthetic_, count, rows, options_.context);
    sequences.warm_up(synthetic_.model, ops_, *exec_);
    const model::Step step = sequences.step();
    const model::PlacedStep placed(synthetic_.model, step, {}, *exec_);
    ExpertUnion experts;
    pass(placed, sequences.cache(), ops_, {.observer = &experts});
    report(count, rows, played(placed, sequences.cache()), experts.distinct());
    if (options_.by_op) report_ops(count, rows, placed, sequences.cache());
  }

 private:
  void pass(
      const model::PlacedStep& placed,
      cache::KvCache& cache,
      const ops::OpTable& table,
      const model::ForwardOptions& options = {}
  ) {
    run_placed(synthetic_.model, placed, cache, table, *exec_, options);
  }

  /// Seconds of a recorded pass, the median of nine.
  double played(const model::PlacedStep& placed, cache::KvCache& cache) {
    const double microseconds =
        ops::cuda::measure(exec_->stream, 2, [&](int) { pass(placed, cache, ops_); });
    return microseconds * 1e-6;
  }

  void report(int64_t count, int64_t rows, double seconds, int64_t distinct) {
    const ModelConfig& config = synthetic_.model.config;
    const auto layers = static_cast<double>(config.num_hidden_layers);
    const double bytes = static_cast<double>(synthetic_.dense_bytes_per_layer) * layers +
                         static_cast<double>(distinct * synthetic_.expert_bytes);
    const model::FlopsCounter counter(config);
    const double flops = static_cast<double>(counter
                                                 .count(
                                                     {.start = options_.context,
                                                      .num_rows = rows,
                                                      .prompt_length = options_.context + rows,
                                                      .rows_with_logits = 0}
                                                 )
                                                 .unweighted) *
                         static_cast<double>(count);
    emit_(Json::Object{
        {"name", "layer"},
        {"backend", "cuda"},
        {"isa", ops_.isa},
        {"shape", fmt::format("{}, context {}", options_.shape, options_.context)},
        {"layers", config.num_hidden_layers},
        {"sequences", count},
        {"rows", count * rows},
        {"us", seconds * 1e6 / layers},
        {"experts", static_cast<double>(distinct) / layers},
        {"bytes", bytes / layers},
        {"read_tbps", read_rate_ * 1e-12},
        {"over_bytes", seconds / (bytes / read_rate_)},
        {"tflops", flops / seconds * 1e-12}});
  }

  void report_ops(
      int64_t count, int64_t rows, const model::PlacedStep& placed, cache::KvCache& cache
  ) {
    const auto layers = static_cast<double>(synthetic_.model.config.num_hidden_layers);
    ops::cuda::occupy(exec_->stream, 0.03);  // the launches run ahead meanwhile
    ops::cuda::OpEvents watch(ops_, exec_->stream);
    exec_->observer = &watch;
    pass(placed, cache, watch.table());
    exec_->observer = nullptr;
    for (const auto& [op, seconds] : times_of(watch)) {
      emit_(Json::Object{
          {"name", "layer/" + op},
          {"backend", "cuda"},
          {"isa", ops_.isa},
          {"sequences", count},
          {"rows", count * rows},
          {"us", seconds * 1e6 / layers}});
    }
  }

  const LayerOptions& options_;
  const Emit& emit_;
  const ops::OpTable& ops_;
  ThreadPool pool_;
  ops::OwnedExec exec_;
  double read_rate_;
  SyntheticModel synthetic_;
};

}  // namespace

void bench_layer(const LayerOptions& options, const Emit& emit) {
  LayerBench bench(options, emit);
  for (const int64_t count : options.sequences)
    bench.run(count, 1);
  for (const int64_t rows : options.chunks)
    bench.run(1, rows);
}

}  // namespace di::bench::cuda
