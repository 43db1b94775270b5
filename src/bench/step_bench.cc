#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "cache/kv_cache.h"
#include "engine/make_device.h"
#include "engine/stats.h"

namespace di::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Times of the steps of one phase.
struct StepTimes {
  std::vector<double> seconds;  // from result to result
  std::vector<double> device;   // by the step's own clock
};

/// A device with `count` sequences, and the orders of their steps.
class Steps {
 public:
  Steps(
      const StepBenchOptions& options,
      const model::Model& model,
      const ops::OpTable& ops,
      ThreadPool& pool,
      int64_t count
  )
      : options_(options),
        count_(count),
        length_(options.context + 2 * options.num_steps + 1),
        blocks_each_(ceil_div(length_, cache::kBlockTokens)),
        cache_(cache::make_layout(model.config), count * blocks_each_, count, ops.memory()),
        device_(engine::make_device({model, ops, cache_, pool, {}, length_})),
        vocab_size_(model.config.vocab_size) {}

  StepTimes prefill() {
    StepTimes times;
    for (int64_t sequence = 0; sequence < count_; ++sequence) {
      for (int64_t start = 0; start < options_.context; start += options_.chunk)
        launch({chunk_of(sequence, start)}, times);
    }
    drain(times);
    return times;
  }

  StepTimes decode(int64_t num_steps) {
    StepTimes times;
    for (int64_t i = 0; i < num_steps; ++i, ++decoded_) {
      std::vector<engine::SequenceOrder> orders;
      for (int64_t sequence = 0; sequence < count_; ++sequence)
        orders.push_back(rows_of(sequence, options_.context + decoded_, 1));
      launch(std::move(orders), times);
    }
    drain(times);
    return times;
  }

 private:
  engine::SequenceOrder rows_of(int64_t sequence, int64_t start, int64_t num_rows) const {
    engine::SequenceOrder order;
    order.rows.id = sequence;
    order.rows.slot = static_cast<int32_t>(sequence);
    order.rows.start = start;
    order.rows.num_rows = num_rows;
    order.rows.prompt_tokens = options_.context;
    order.rows.samples = start + num_rows >= options_.context;
    order.rows.is_prefill = start < options_.context;
    return order;
  }

  /// Rows of a prompt; the first ones bring the sequence and all its blocks along.
  engine::SequenceOrder chunk_of(int64_t sequence, int64_t start) const {
    engine::SequenceOrder order =
        rows_of(sequence, start, std::min(options_.chunk, options_.context - start));
    if (start > 0) return order;
    order.rows.admitted = true;
    for (int64_t block = 0; block < blocks_each_; ++block)
      order.rows.new_blocks.push_back(static_cast<int32_t>(sequence * blocks_each_ + block));
    auto admission = std::make_shared<engine::Admission>();
    auto sampling = std::make_shared<sampling::SamplingParams>();
    sampling->temperature = 0;
    sampling->ignore_eos = true;
    admission->sampling = std::move(sampling);
    for (int64_t i = 0; i < options_.context; ++i)
      admission->tokens.push_back(static_cast<int32_t>((i * 7 + sequence * 11 + 1) % vocab_size_));
    admission->num_prompt_tokens = options_.context;
    order.admission = std::move(admission);
    return order;
  }

  void launch(std::vector<engine::SequenceOrder> orders, StepTimes& times) {
    if (in_flight_ == device_->depth()) collect(times);
    if (in_flight_ == 0) last_ = Clock::now();
    device_->launch({.step = num_launched_++, .sequences = std::move(orders)});
    ++in_flight_;
  }

  void collect(StepTimes& times) {
    const engine::StepResult result = device_->collect();
    --in_flight_;
    const Clock::time_point now = Clock::now();
    times.seconds.push_back(seconds_between(last_, now));
    times.device.push_back(result.seconds);
    last_ = now;
    if (!result.error.empty())
      throw Error(ErrorCode::kUnsupported, "a step failed: " + result.error);
    for (const engine::SequenceResult& sequence : result.sequences) {
      if (sequence.end != engine::DrawEnd::kGoesOn)
        throw Error(ErrorCode::kUnsupported, "the logits of a row are not finite");
    }
  }

  void drain(StepTimes& times) {
    while (in_flight_ > 0)
      collect(times);
  }

  const StepBenchOptions& options_;
  int64_t count_;
  int64_t length_;
  int64_t blocks_each_;
  cache::KvCache cache_;
  std::unique_ptr<engine::Device> device_;
  int64_t vocab_size_;
  int64_t num_launched_ = 0;
  int64_t in_flight_ = 0;
  int64_t decoded_ = 0;
  Clock::time_point last_;
};

Json line_of(
    const StepBenchOptions& options,
    const ops::OpTable& ops,
    const char* phase,
    int64_t sequences,
    double rows,
    const StepTimes& times
) {
  const engine::Distribution seconds = *engine::distribution_of(times.seconds);
  return Json::Object{
      {"name", "step"},
      {"backend", ops.name},
      {"model", options.label},
      {"phase", phase},
      {"context", options.context},
      {"sequences", sequences},
      {"rows", rows},
      {"steps", static_cast<int64_t>(times.seconds.size())},
      {"us", seconds.p50 * 1e6},
      {"p99_us", seconds.p99 * 1e6},
      {"device_us", engine::distribution_of(times.device)->p50 * 1e6},
      {"rows_per_s", rows / seconds.p50}};
}

}  // namespace

void bench_step(
    const StepBenchOptions& options,
    const model::Model& model,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const Emit& emit
) {
  for (const int64_t count : options.sequences) {
    Steps steps(options, model, ops, pool, count);
    const int64_t chunk = std::min(options.chunk, options.context);
    emit(line_of(options, ops, "prefill", count, static_cast<double>(chunk), steps.prefill()));
    steps.decode(options.num_steps);
    emit(line_of(
        options, ops, "decode", count, static_cast<double>(count), steps.decode(options.num_steps)
    ));
  }
}

}  // namespace di::bench
