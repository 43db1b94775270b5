#include "bench/decode_batch_bench.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/expert_union.h"
#include "bench/limits.h"
#include "bench/timing.h"

namespace di::bench {
namespace {

/// Sequences of one more row each, behind a context whose blocks are all one filled block: what
/// they hold does not change what is read.
class DecodeRows {
 public:
  DecodeRows(const SyntheticModel& synthetic, int64_t count, int64_t context)
      : cache_(cache::make_layout(synthetic.model.config), count + 1, count),
        ids_(std::max(kWarmRows, static_cast<std::size_t>(context + count))) {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = static_cast<int32_t>(
          (static_cast<int64_t>(i) * 7 + 1) % synthetic.model.config.vocab_size
      );
    }
    for (int64_t i = 0; i < count; ++i) {
      states_.emplace_back(cache_);
      states_.back().reserve_tokens(i == 0 ? 2 * cache::kBlockTokens : cache::kBlockTokens);
    }
    for (int64_t i = 0; i < count; ++i)
      tables_.push_back(table_of(i, context));
  }

  /// Fills the first sequence's window and a block, and gives all others the same window.
  void warm_up(const model::Model& model, const ops::OpTable& table, ops::Exec& exec) {
    model::Step step;
    step.sequences.push_back(row_of(0, std::span(ids_).first(kWarmRows), 0));
    step.sequences[0].block_table = states_[0].block_table().data();
    const Arena::Scope scope(exec.scratch);
    forward(model, step, cache_, table, exec);
    for (const cache::SequenceState& state : states_) {
      if (state.slot() == states_[0].slot()) continue;
      cache_.copy_slot(static_cast<int32_t>(states_[0].slot()), static_cast<int32_t>(state.slot()));
    }
  }

  /// A row of each, at position `context`, each with a token of its own.
  model::Step step(int64_t context) const {
    model::Step step;
    for (std::size_t i = 0; i < states_.size(); ++i)
      step.sequences.push_back(
          row_of(i, std::span(ids_).subspan(i, static_cast<std::size_t>(context) + 1), context)
      );
    return step;
  }

  cache::KvCache& cache() { return cache_; }

 private:
  static constexpr std::size_t kWarmRows = cache::kBlockTokens + cache::kRollbackTokens;

  model::SequenceInput row_of(std::size_t sequence, std::span<const int32_t> tokens, int64_t start)
      const {
    model::SequenceInput input;
    input.tokens = tokens;
    input.start = start;
    input.slot = states_[sequence].slot();
    input.block_table = tables_[sequence].data();
    input.logits = model::LogitRows::kNone;
    return input;
  }

  std::vector<int32_t> table_of(int64_t sequence, int64_t context) const {
    const int32_t shared = states_[0].block_table()[0];
    const int32_t own = sequence == 0
                            ? states_[0].block_table()[1]
                            : states_[static_cast<std::size_t>(sequence)].block_table()[0];
    std::vector<int32_t> table(static_cast<std::size_t>(context / cache::kBlockTokens), shared);
    table.push_back(own);
    return table;
  }

  cache::KvCache cache_;
  std::vector<int32_t> ids_;
  std::vector<cache::SequenceState> states_;
  std::vector<std::vector<int32_t>> tables_;
};

class DecodeBatchBench {
 public:
  DecodeBatchBench(const DecodeBatchOptions& options, const Emit& emit)
      : options_(options),
        emit_(emit),
        pool_(options.threads),
        table_(ops::cpu_ops(options.isa)),
        limits_(measure_limits(pool_, options.isa)),
        synthetic_(synthetic_model(options.shape, table_, pool_)),
        bytes_(synthetic_step_bytes(synthetic_, options.context)) {}

  void run(int64_t count) {
    DecodeRows rows(synthetic_, count, options_.context);
    rows.warm_up(synthetic_.model, table_, exec_);
    const model::Step step = rows.step(options_.context);
    ExpertUnion experts;
    const Arena::Scope scope(scratch_);
    forward(synthetic_.model, step, rows.cache(), table_, exec_, {.observer = &experts});
    const Times times = time_calls({.seconds = options_.seconds, .least_samples = 3}, [&] {
      const Arena::Scope step_scope(scratch_);
      forward(synthetic_.model, step, rows.cache(), table_, exec_);
    });
    const auto layers = static_cast<double>(bytes_.layers);
    report(count, times.best_s / layers, static_cast<double>(experts.distinct()) / layers);
  }

 private:
  void report(int64_t count, double seconds, double experts) {
    const auto layers = static_cast<double>(bytes_.layers);
    const auto rows = static_cast<double>(count);
    const double rate = rows / seconds;
    const double permitted = bytes_.permitted_gain(rows, experts);
    const double expected = bytes_.permitted_gain(rows, bytes_.expected_experts(rows));
    if (first_rate_ == 0) {
      first_rate_ = rate;
      first_permitted_ = permitted;
      first_expected_ = expected;
    }
    const double bytes = bytes_.of_step(rows, experts) / layers;
    const double gbps = bytes / seconds * 1e-9;
    emit_(Json::Object{
        {"name", "decode_batch"},
        {"backend", table_.name},
        {"isa", table_.isa},
        {"threads", pool_.num_threads()},
        {"rows", count},
        {"shape", fmt::format("{}, context {}", options_.shape, options_.context)},
        {"us", seconds * 1e6},
        {"rows_per_s", rate},
        {"gain", rate / first_rate_},
        {"experts", experts},
        {"experts_expected", bytes_.expected_experts(rows)},
        {"bytes", bytes},
        {"bytes_gain", permitted / first_permitted_},
        {"bytes_gain_expected", expected / first_expected_},
        {"gbps", gbps},
        {"share", gbps / limits_.read_gbps}});
  }

  const DecodeBatchOptions& options_;
  const Emit& emit_;
  ThreadPool pool_;
  const ops::OpTable& table_;
  Limits limits_;
  SyntheticModel synthetic_;
  StepBytes bytes_;
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
  double first_rate_ = 0;
  double first_permitted_ = 0;
  double first_expected_ = 0;
};

}  // namespace

StepBytes synthetic_step_bytes(const SyntheticModel& synthetic, int64_t context) {
  const ModelConfig& config = synthetic.model.config;
  const auto layers = static_cast<double>(config.num_hidden_layers);
  const auto expert = static_cast<double>(synthetic.expert_bytes);
  const double experts = layers * static_cast<double>(config.moe.n_routed_experts) * expert;
  const double dense = layers * static_cast<double>(synthetic.dense_bytes_per_layer);
  return step_bytes(config, dense + experts, expert, static_cast<double>(context));
}

void bench_decode_batch(const DecodeBatchOptions& options, const Emit& emit) {
  DecodeBatchBench bench(options, emit);
  for (const int64_t count : options.sequences)
    bench.run(count);
}

}  // namespace di::bench
