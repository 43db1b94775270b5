// The sampler on the device at the vocabulary of the model: bytes of the logits, read once.
#include <memory>
#include <random>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "sampling/cuda/benchmarks.h"
#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::BenchReport;

constexpr int64_t kVocabSize = 129280;
constexpr int64_t kSets = 4;

template <class T>
std::shared_ptr<std::byte> uploaded(const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  auto data = ops::cuda::device_memory().allocate(bytes, "a benchmark");
  const auto code =
      cudaMemcpy(data.get(), values.data(), static_cast<std::size_t>(bytes), cudaMemcpyDefault);
  ops::cuda::check(code, "upload");
  return data;
}

/// Rows with some tens of likely tokens above a normal bulk, as a model's.
std::shared_ptr<std::byte> model_like_logits(int64_t rows) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<std::size_t>(rows * kVocabSize));
  for (float& logit : logits)
    logit = 2 * normal(random);
  for (int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < 40; ++i) {
      logits[static_cast<std::size_t>(row * kVocabSize + random() % kVocabSize)] =
          18 - 0.3f * static_cast<float>(i) + normal(random);
    }
  }
  return uploaded(logits);
}

void bench_params(
    const BenchReport& report,
    cudaStream_t stream,
    const char* shape,
    const SamplingParams& params,
    int64_t rows
) {
  const auto logits = model_like_logits(rows * kSets);
  std::vector<std::unique_ptr<DeviceSlot>> owners;
  std::vector<SlotParams> slots;
  std::vector<DrawRow> draw_rows;
  const std::vector<int32_t> prompt = {1, 2, 3, 500, 70000};
  for (int64_t row = 0; row < rows; ++row) {
    Arena staging;
    owners.push_back(std::make_unique<DeviceSlot>(
        params, 1, 77 + row, prompt, prompt, kVocabSize, SlotArea(), staging, stream
    ));
    slots.push_back(owners.back()->params());
    draw_rows.push_back({.position = row, .slot = static_cast<int32_t>(row)});
  }
  const auto device_slots = uploaded(slots);
  const auto device_rows = uploaded(draw_rows);
  const auto results = ops::cuda::device_memory().allocate(rows * 64 * 8, "a benchmark");
  auto* words = reinterpret_cast<int32_t*>(results.get());
  auto* floats = reinterpret_cast<float*>(results.get());
  const Drawn drawn{
      .tokens = View<int32_t, 1>(words, rows),
      .logprobs = View<float, 1>(floats + rows, rows),
      .finite = View<uint8_t, 1>(reinterpret_cast<uint8_t*>(words + 2 * rows), rows),
      .top_tokens = View<int32_t, 2>(words + 3 * rows, rows, 20),
      .top_logprobs = View<float, 2>(floats + 23 * rows, rows, 20)};
  const auto* first = reinterpret_cast<const float*>(logits.get());
  const double time = ops::cuda::measure(stream, 20, [&](int turn) {
    draw(
        stream,
        {.logits = View<const float, 2>(first + turn % kSets * rows * kVocabSize, rows, kVocabSize),
         .rows = View<const DrawRow, 1>(reinterpret_cast<const DrawRow*>(device_rows.get()), rows),
         .slots = View<const SlotParams, 1>(
             reinterpret_cast<const SlotParams*>(device_slots.get()), rows
         ),
         .drawn = drawn}
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
