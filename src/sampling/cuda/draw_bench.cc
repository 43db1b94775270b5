// The sampler on the device at the vocabulary of the model: bytes of the logits, read once.
#include "ops/cuda/benchmarks.h"
#include "sampling/cuda/bench_tools.h"
#include "sampling/cuda/benchmarks.h"
#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::BenchReport;

void bench_params(
    const BenchReport& report,
    cudaStream_t stream,
    const char* shape,
    const SamplingParams& params,
    int64_t rows
) {
  const BenchLogits logits(rows);
  const BenchSlots slots(params, rows, stream);
  const BenchResults results(rows);
  const BenchArray<DrawRow> draw_rows(bench_draw_rows(slots));
  const double time = ops::cuda::measure(stream, 20, [&](int turn) {
    draw(
        stream,
        {.logits = logits.of_turn(turn),
         .rows = View<const DrawRow, 1>(draw_rows.data(), rows),
         .slots = slots.view(),
         .drawn = results.drawn()}
    );
  });
  report(
      {.op = "draw",
       .shape = shape,
       .rows = rows,
       .microseconds = time,
       .bytes = static_cast<double>(rows * kVocabSize * 4)}
  );
}

}  // namespace

void bench_draw(const BenchReport& report) {
  cudaStream_t stream = nullptr;
  ops::cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (const int64_t rows : {1, 8, 64, 128}) {
    bench_params(report, stream, "greedy", {.temperature = 0}, rows);
    bench_params(report, stream, "temperature 1", {}, rows);
    if (rows != 1 && rows != 64) continue;
    bench_params(
        report, stream, "temperature 0.6, top_p 0.95", {.temperature = 0.6, .top_p = 0.95}, rows
    );
    bench_params(report, stream, "top_k 50, min_p 0.05", {.top_k = 50, .min_p = 0.05}, rows);
    bench_params(report, stream, "temperature 8 (flat)", {.temperature = 8}, rows);
    bench_params(
        report, stream, "penalties", {.repetition_penalty = 1.1, .presence_penalty = 0.5}, rows
    );
    bench_params(report, stream, "greedy, logprobs", {.temperature = 0, .logprobs = true}, rows);
    bench_params(report, stream, "greedy, 20 best", {.temperature = 0, .top_logprobs = 20}, rows);
    bench_params(
        report,
        stream,
        "temperature 1, 20 best, processed",
        {.top_logprobs = 20, .processed_logprobs = true},
        rows
    );
  }
  cudaStreamDestroy(stream);
}

}  // namespace di::sampling::cuda
