// Steps that verify drafts, at the vocabulary of the model: bytes of the logits, read once.
#include "ops/cuda/benchmarks.h"
#include "sampling/cuda/bench_tools.h"
#include "sampling/cuda/benchmarks.h"
#include "sampling/cuda/drafts.h"
#include "sampling/cuda/verify.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::BenchReport;

/// Blocks of one size, all with the drafts 0, 1, 2, …, which nothing draws: every row is drawn all
/// the same.
void bench_blocks(
    const BenchReport& report,
    cudaStream_t stream,
    const std::string& shape,
    const SamplingParams& params,
    int64_t sequences,
    int64_t drafts
) {
  const int64_t rows = sequences * (drafts + 1);
  const BenchLogits logits(rows);
  const BenchSlots slots(params, sequences, stream);
  const BenchResults results(rows);
  const BenchArray<int32_t> guesses({0, 1, 2, 3, 4, 5});
  const BenchArray<int32_t> num_drawn(sequences);
  std::vector<VerifyBlock> blocks;
  for (int64_t i = 0; i < sequences; ++i) {
    blocks.push_back(
        {.position = 1000 + i,
         .drafts = guesses.data(),
         .first_row = static_cast<int32_t>(i * (drafts + 1)),
         .num_drafts = static_cast<int32_t>(drafts),
         .slot = static_cast<int32_t>(i)}
    );
  }
  const BenchArray<VerifyBlock> device_blocks(blocks);
  const double time = ops::cuda::measure(stream, 20, [&](int turn) {
    verify(
        stream,
        {.logits = logits.of_turn(turn),
         .blocks = View<const VerifyBlock, 1>(device_blocks.data(), sequences),
         .most_drafts = drafts,
         .slots = slots.view(),
         .drawn = results.drawn(),
         .num_drawn = View<int32_t, 1>(num_drawn.data(), sequences)}
    );
  });
  report(
      {.op = "verify",
       .shape = shape + ", " + std::to_string(drafts + 1) + " rows each",
       .rows = rows,
       .microseconds = time,
       .bytes = static_cast<double>(rows * kVocabSize * 4)}
  );
}

/// The choice of the fifth draft.
void bench_choice(
    const BenchReport& report,
    cudaStream_t stream,
    const std::string& shape,
    const SamplingParams& params,
    int64_t sequences
) {
  constexpr int64_t kDrafts = 5;
  const BenchLogits logits(sequences);
  const BenchSlots slots(params, sequences, stream);
  const BenchArray<int32_t> drafts(kDrafts * sequences);
  const BenchArray<DrawRow> anchors(bench_draw_rows(sequences));
  const double time = ops::cuda::measure(stream, 20, [&](int turn) {
    choose_drafts(
        stream,
        {.logits = logits.of_turn(turn),
         .rows = View<const DrawRow, 1>(anchors.data(), sequences),
         .slots = slots.view(),
         .drafts = View<int32_t, 2>(drafts.data(), kDrafts, sequences)}
    );
  });
  report(
      {.op = "choose_drafts",
       .shape = shape,
       .rows = sequences,
       .microseconds = time,
       .bytes = static_cast<double>(sequences * kVocabSize * 4)}
  );
}

}  // namespace

void bench_verify(const BenchReport& report) {
  cudaStream_t stream = nullptr;
  ops::cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const SamplingParams greedy{.temperature = 0};
  const SamplingParams warm{};
  for (const int64_t sequences : {1, 8, 64}) {
    for (const int64_t drafts : {0, 1, 3, 5}) {
      bench_blocks(report, stream, "greedy", greedy, sequences, drafts);
      bench_blocks(report, stream, "temperature 1", warm, sequences, drafts);
    }
    const SamplingParams penalised{.repetition_penalty = 1.1, .presence_penalty = 0.5};
    bench_blocks(report, stream, "penalties", penalised, sequences, 5);
    const SamplingParams cut{.temperature = 0.6, .top_p = 0.95};
    bench_blocks(report, stream, "temperature 0.6, top_p 0.95", cut, sequences, 5);
    bench_choice(report, stream, "greedy", greedy, sequences);
    bench_choice(report, stream, "temperature 1", warm, sequences);
  }
  cudaStreamDestroy(stream);
}

}  // namespace di::sampling::cuda
