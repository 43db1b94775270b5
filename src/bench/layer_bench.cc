#include "bench/layer_bench.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "bench/expert_union.h"
#include "bench/limits.h"
#include "bench/synthetic_model.h"
#include "bench/timed_ops.h"

namespace di::bench {
namespace {

/// The best run of the step, and what each op took in it.
struct BestRun {
  double seconds = 0;
  std::vector<OpTime> ops;
};

class LayerBench {
 public:
  LayerBench(const LayerBenchOptions& options, const Emit& emit)
      : options_(options),
        emit_(emit),
        pool_(options.threads),
        table_(ops::cpu_ops(options.isa)),
        limits_(measure_limits(pool_, options.isa)),
        synthetic_(synthetic_model(options.shape, table_, pool_)) {}

  void run(int64_t rows) {
    const int64_t warm_rows =
        cache::kBlockTokens + cache::kRollbackTokens;  // fill a block and the ring
    const int64_t own_blocks = 2 + (rows + cache::kBlockTokens - 1) / cache::kBlockTokens;
    cache::KvCache cache(cache::make_layout(synthetic_.model.config), own_blocks, /*num_slots=*/1);
    cache::SequenceState state(cache);
    state.reserve_tokens(own_blocks * cache::kBlockTokens);
    const std::vector<int32_t> warm_ids = token_ids(warm_rows);
    model::Step step;
    step.sequences.emplace_back();
    step.sequences[0].tokens = warm_ids;
    step.sequences[0].slot = state.slot();
    step.sequences[0].block_table = state.block_table().data();
    step.sequences[0].logits = model::LogitRows::kNone;
    run_once(step, cache);

    const std::vector<int32_t> ids = token_ids(options_.context + rows);
    const std::vector<int32_t> blocks = context_blocks(state.block_table().data(), own_blocks);
    step.sequences[0].tokens = ids;
    step.sequences[0].start = options_.context;
    step.sequences[0].block_table = blocks.data();
    ExpertUnion experts;
    run_once(step, cache, &experts);
    report(rows, best_run(step, cache), experts.distinct());
  }

 private:
  std::vector<int32_t> token_ids(int64_t count) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<int32_t>((i * 7 + 1) % synthetic_.model.config.vocab_size));
    }
    return ids;
  }

  /// The blocks of the context are all the one that was really filled; the new rows get their own.
  std::vector<int32_t> context_blocks(const int32_t* own, int64_t own_blocks) const {
    std::vector<int32_t> blocks(
        static_cast<std::size_t>(options_.context / cache::kBlockTokens), own[0]
    );
    blocks.insert(blocks.end(), own + 1, own + own_blocks);
    return blocks;
  }

  void run_once(
      const model::Step& step, cache::KvCache& cache, model::Observer* observer = nullptr
  ) {
    const Arena::Scope scope(scratch_);
    forward(synthetic_.model, step, cache, table_, exec_, {.observer = observer});
  }

  BestRun best_run(const model::Step& step, cache::KvCache& cache) {
    OpTimer timer(table_);
    exec_.observer = &timer;
    BestRun best;
    double total = 0;
    for (int samples = 0; samples < 3 || total < options_.seconds; ++samples) {
      timer.reset();
      const auto start = std::chrono::steady_clock::now();
      const Arena::Scope scope(scratch_);
      forward(synthetic_.model, step, cache, timer.table(), exec_);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      total += elapsed.count();
      if (samples == 0 || elapsed.count() < best.seconds) best = {elapsed.count(), timer.times()};
    }
    exec_.observer = nullptr;
    return best;
  }

  void report(int64_t rows, const BestRun& best, int64_t distinct_experts) {
    const auto layers = static_cast<double>(synthetic_.model.config.num_hidden_layers);
    const ModelConfig& config = synthetic_.model.config;
    const double bytes = static_cast<double>(synthetic_.dense_bytes_per_layer) * layers +
                         static_cast<double>(distinct_experts * synthetic_.expert_bytes);
    const double weights_a_row =
        static_cast<double>(synthetic_.dense_weights_per_layer) +
        static_cast<double>(config.moe.num_experts_per_tok * synthetic_.expert_weights);
    const double gbps = bytes / best.seconds / 1e9;
    const double gflops =
        2 * static_cast<double>(rows) * weights_a_row * layers / best.seconds / 1e9;
    const double share = std::max(gbps / limits_.read_gbps, gflops / limits_.fma_gflops);
    emit_line("layer", rows, best.seconds / layers, gbps, gflops, share);
    double in_ops = 0;
    for (const OpTime& op : best.ops) {
      in_ops += op.seconds;
      emit_line("layer/" + op.name, rows, op.seconds / layers, 0, 0, op.seconds / best.seconds);
    }
    const double gaps = best.seconds - in_ops;
    emit_line("layer/gaps", rows, gaps / layers, 0, 0, gaps / best.seconds);
  }

  void emit_line(
      const std::string& name,
      int64_t rows,
      double seconds,
      double gbps,
      double gflops,
      double share
  ) {
    emit_(Json::Object{
        {"name", Json(name)},
        {"backend", Json(table_.name)},
        {"isa", Json(table_.isa)},
        {"rows", Json(rows)},
        {"shape", Json(fmt::format("{}, context {}", options_.shape, options_.context))},
        {"us", Json(seconds * 1e6)},
        {"gbps", Json(gbps)},
        {"gflops", Json(gflops)},
        {"share", Json(share)}});
  }

  const LayerBenchOptions& options_;
  const Emit& emit_;
  ThreadPool pool_;
  const ops::OpTable& table_;
  Limits limits_;
  SyntheticModel synthetic_;
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
};

}  // namespace

void bench_layer(const LayerBenchOptions& options, const Emit& emit) {
  LayerBench bench(options, emit);
  for (const int64_t rows : options.rows)
    bench.run(rows);
}

}  // namespace di::bench
