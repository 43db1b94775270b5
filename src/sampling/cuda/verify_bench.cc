// Steps that verify drafts, at the vocabulary of the model: bytes of the logits, read once.
#include "ops/cuda/benchmarks.h"
#include "sampling/cuda/bench_tools.h"
#include "sampling/cuda/benchmarks.h"
#include "sampling/cuda/drafts.h"
#include "sampling/cuda/verify.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::BenchReport;

/// Drafts of many sequences, drawn from rows like the target's.
struct BenchDrafts {
  BenchDrafts(const BenchSlots& slots, int64_t count, bool by_blocks)
      : records(std::max<int64_t>(1, count * slots.count())),
        drafts(std::max<int64_t>(1, count * slots.count())) {
    for (int64_t i = 0; i < slots.count(); ++i) {
      rows.push_back(
          {.position = 1000 + i,
           .slot = static_cast<int32_t>(i),
           .is_plain = !by_blocks && is_plainly_greedy(slots.slot(i)),
           .records = by_blocks ? records.data() + i * count : nullptr}
      );
    }
  }

  BenchArray<DraftRecord> records;
  BenchArray<int32_t> drafts;  // [count, sequences]
  std::vector<DraftRow> rows;
};

/// Blocks of one size. By exact seed all have the drafts 0, 1, 2, …, which nothing draws: every row
/// is drawn all the same. By blocks they have drafts of like rows.
void bench_blocks(
    const BenchReport& report,
    cudaStream_t stream,
    const std::string& shape,
    const SamplingParams& params,
    int64_t sequences,
    int64_t drafts,
    bool by_blocks = false
) {
  const int64_t rows = sequences * (drafts + 1);
  const BenchLogits logits(rows);
  const BenchSlots slots(params, sequences, stream);
  const BenchResults results(rows);
  const BenchDrafts drafted(slots, drafts, by_blocks);
  std::vector<int32_t> guesses;
  for (int64_t i = 0; i < sequences * drafts; ++i)
    guesses.push_back(static_cast<int32_t>(i % 5));
  if (by_blocks) {
    const BenchArray<DraftRow> anchors(drafted.rows);
    for (int64_t i = 0; i < drafts; ++i) {
      choose_drafts(
          stream,
          {.logits = View<const float, 2>(logits.of_turn(0).data, sequences, kVocabSize),
           .rows = View<const DraftRow, 1>(anchors.data(), sequences),
           .slots = slots.view(),
           .drafts = View<int32_t, 2>(drafted.drafts.data(), i + 1, sequences)}
      );
    }
    cudaStreamSynchronize(stream);
    std::vector<int32_t> chosen(guesses.size());
    cudaMemcpy(chosen.data(), drafted.drafts.data(), chosen.size() * 4, cudaMemcpyDefault);
    for (int64_t i = 0; i < sequences * drafts; ++i)
      guesses[i] = chosen[i % drafts * sequences + i / drafts];
  }
  guesses.resize(guesses.size() + 1);
  const BenchArray<int32_t> device_guesses(guesses);
  const BenchArray<int32_t> num_drawn(sequences);
  std::vector<VerifyBlock> blocks;
  for (int64_t i = 0; i < sequences; ++i) {
    blocks.push_back(
        {.position = 1000 + i,
         .drafts = device_guesses.data() + i * drafts,
         .records = by_blocks ? drafted.records.data() + i * drafts : nullptr,
         .first_row = static_cast<int32_t>(i * (drafts + 1)),
         .num_drafts = static_cast<int32_t>(drafts),
         .slot = static_cast<int32_t>(i),
         .is_plain = is_plainly_greedy(slots.slot(i))}
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
    int64_t sequences,
    bool by_blocks
) {
  constexpr int64_t kDrafts = 5;
  const BenchLogits logits(sequences);
  const BenchSlots slots(params, sequences, stream);
  const BenchDrafts drafted(slots, kDrafts, by_blocks);
  const BenchArray<DraftRow> anchors(drafted.rows);
  const double time = ops::cuda::measure(stream, 20, [&](int turn) {
    choose_drafts(
        stream,
        {.logits = logits.of_turn(turn),
         .rows = View<const DraftRow, 1>(anchors.data(), sequences),
         .slots = slots.view(),
         .drafts = View<int32_t, 2>(drafted.drafts.data(), kDrafts, sequences)}
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
      if (drafts > 0) bench_blocks(report, stream, "by blocks", warm, sequences, drafts, true);
    }
    const SamplingParams penalised{.repetition_penalty = 1.1, .presence_penalty = 0.5};
    bench_blocks(report, stream, "penalties", penalised, sequences, 5);
    const SamplingParams cut{.temperature = 0.6, .top_p = 0.95};
    bench_blocks(report, stream, "temperature 0.6, top_p 0.95", cut, sequences, 5);
    bench_blocks(report, stream, "by blocks, 0.6, top_p 0.95", cut, sequences, 5, true);
    bench_choice(report, stream, "greedy", greedy, sequences, false);
    bench_choice(report, stream, "penalties, exact seed", penalised, sequences, false);
    bench_choice(report, stream, "by blocks, temperature 1", warm, sequences, true);
    bench_choice(report, stream, "by blocks, 0.6, top_p 0.95", cut, sequences, true);
  }
  cudaStreamDestroy(stream);
}

}  // namespace di::sampling::cuda
