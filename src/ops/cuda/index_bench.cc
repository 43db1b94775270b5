// The indexer and the compressor: scores and selections by rows and context, and the row ops.
#include <array>

#include <fmt/format.h>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/compressor.h"
#include "ops/cuda/index_keys.h"
#include "ops/cuda/index_select.h"
#include "ops/cuda/index_testing.h"
#include "ops/cuda/index_top_k.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::IndexSequence;
using testing::IndexShape;
using testing::Machine;
using testing::RandomIndex;

constexpr IndexShape kModel{32, 128, 1, 512, 8, 2048};
constexpr int64_t kKeyBytes = 68;
constexpr double kScoreFlops = 2.0 * 32 * 128;

/// A step of equal sequences over keys that exceed the second-level cache.
struct Step {
  Step(int64_t count, int64_t rows_each, int64_t context)
      : sequences(count),
        length(context),
        random(
            7,
            kModel,
            std::vector<IndexSequence>(
                static_cast<std::size_t>(count), IndexSequence{context - rows_each, rows_each}
            )
        ),
        device(random),
        selected(random.rows() * kModel.topk),
        candidates(random.rows() * kModel.blocks) {}

  IndexSelect op() const {
    IndexSelect op = device.op();
    op.selected = View<int32_t, 2>(selected.data(), random.rows(), kModel.topk);
    return op;
  }
  View<int32_t, 2> candidate_view() const {
    return View<int32_t, 2>(candidates.data(), random.rows(), kModel.blocks);
  }
  double key_bytes() const { return static_cast<double>(sequences * length * kKeyBytes); }
  double places() const { return static_cast<double>(random.rows() * length); }
  std::string shape() const {
    return fmt::format("{} sequences of {}K, 32x128", sequences, length / 1024);
  }

  int64_t sequences, length;
  RandomIndex random;
  RandomIndex::OnDevice device;
  DeviceArray<int32_t> selected, candidates;
};

/// Scores alone and selection alone, of rows that fit one workspace.
void bench_halves(
    const BenchReport& report, Machine& machine, const std::vector<const Step*>& steps
) {
  const Step& step = *steps.front();
  const int64_t rows = step.random.rows();
  const int64_t stride = (step.length / kScoreTile + 1) * kScoreTile;
  std::vector<DeviceArray<uint16_t>> keys;
  std::vector<DeviceArray<uint16_t>> bests;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    keys.emplace_back(rows * stride);
    bests.emplace_back(rows * stride / kVectorKeys);
  }
  const auto scores = [&](int i) {
    const std::size_t own = static_cast<std::size_t>(i) % steps.size();
    return IndexScores{
        .keys = keys[own].data(),
        .bests = bests[own].data(),
        .stride = stride,
        .first_row = 0,
        .rows = rows};
  };
  const auto step_of = [&](int i) { return steps[static_cast<std::size_t>(i) % steps.size()]; };
  const int repeats = static_cast<int>(std::max<std::size_t>(4, steps.size()));
  report(
      {.op = "index_select: scores",
       .shape = step.shape(),
       .rows = rows,
       .microseconds = measure(
           machine.stream(),
           repeats,
           [&](int i) { score_entries(machine.device(), step_of(i)->op(), scores(i)); }
       ),
       .bytes = step.key_bytes() + 2 * step.places(),
       .flops = kScoreFlops * step.places()}
  );
  report(
      {.op = "index_select: top-k",
       .shape = step.shape(),
       .rows = rows,
       .microseconds = measure(
           machine.stream(),
           repeats,
           [&](int i) { select_entries(machine.device(), step_of(i)->op(), scores(i)); }
       ),
       .bytes = 2 * step.places(),
       .flops = 0}
  );
}

void bench_steps(
    const BenchReport& report,
    Machine& machine,
    int64_t sequences,
    int64_t rows_each,
    int64_t context
) {
  const int64_t bytes = sequences * context * kKeyBytes;
  const auto copies = std::clamp<int64_t>((int64_t{150} << 20) / bytes, 1, 8);
  std::vector<std::unique_ptr<Step>> owned;
  std::vector<const Step*> steps;
  for (int64_t i = 0; i < copies; ++i) {
    owned.push_back(std::make_unique<Step>(sequences, rows_each, context));
    steps.push_back(owned.back().get());
  }
  bench_halves(report, machine, steps);
  const Step& first = *steps.front();
  const auto whole = [&](const char* name, bool source, bool consumer, double moved, double flops) {
    report(
        {.op = name,
         .shape = first.shape(),
         .rows = first.random.rows(),
         .microseconds = measure(
             machine.stream(),
             static_cast<int>(std::max<int64_t>(4, copies)),
             [&](int i) {
               const Step& step = *steps[static_cast<std::size_t>(i % copies)];
               IndexSelect op = step.op();
               if (source) op.candidates_out = step.candidate_view();
               if (consumer) op.candidates_in = step.candidate_view();
               index_select(machine.device(), op);
             }
         ),
         .bytes = moved,
         .flops = flops}
    );
  };
  const double flops = kScoreFlops * first.places();
  const double candidates = static_cast<double>(
      first.random.rows() * std::min(context, kModel.blocks * kModel.block_size)
  );
  whole("index_select", false, false, first.key_bytes(), flops);
  whole("index_select: source", true, false, first.key_bytes(), flops);
  whole("index_select: candidates", false, true, candidates * kKeyBytes, candidates * kScoreFlops);
}

void bench_row_ops(const BenchReport& report, Machine& machine, int64_t rows) {
  constexpr int64_t kWidth = 512;
  constexpr int kCopies = 4;
  const IndexShape shape{32, 128, 2, 512, 8, 2048};
  const RandomIndex random(3, shape, {{0, rows}});
  const RandomIndex::OnDevice device(random);
  std::mt19937 numbers(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<bf16> x(static_cast<std::size_t>(rows * 32 * 128));
  for (bf16& value : x)
    value = to_bf16(normal(numbers));
  std::vector<float> pairs(static_cast<std::size_t>(rows * kWidth));
  for (float& value : pairs)
    value = normal(numbers);
  std::vector<NewEntry> entries;
  for (int64_t row = 1; row < rows; row += 2)
    entries.push_back({row, 0, row / 2});
  const DeviceArray<NewEntry> device_entries(entries);
  const auto count = std::ssize(entries);
  std::vector<DeviceArray<bf16>> queries;
  std::vector<DeviceArray<float>> values;
  for (int i = 0; i < kCopies; ++i) {
    queries.emplace_back(x);
    values.emplace_back(pairs);
  }
  const DeviceArray<uint8_t> codes(rows * 32 * 64), scales(rows * 32 * 4);
  const DeviceArray<bf16> latent(count * kWidth);
  const DeviceArray<float> carry(8 * kWidth * 2);
  const CarryView ring{reinterpret_cast<std::byte*>(carry.data()), 8 * kWidth * 8, 8, kWidth * 8};
  const auto time = [&](const char* op, double bytes, const std::function<void(int)>& enqueue) {
    report(
        {.op = op,
         .shape = "model's widths",
         .rows = rows,
         .microseconds = measure(machine.stream(), 8, enqueue),
         .bytes = bytes,
         .flops = 0}
    );
  };
  const auto scale = static_cast<double>(rows);
  time("quantize_mxfp4", scale * 32 * (256 + 68), [&](int i) {
    quantize_mxfp4(
        machine.device(),
        {View<uint8_t, 2>(codes.data(), rows * 32, 64),
         View<uint8_t, 2>(scales.data(), rows * 32, 4),
         View<const bf16, 2>(queries[static_cast<std::size_t>(i % kCopies)].data(), rows * 32, 128)}
    );
  });
  const IndexSelect call = device.op();
  if (count == 0) return;
  time("index_key_store", scale / 2 * (256 + 68), [&](int i) {
    IndexKeyStore op;
    op.cache = call.keys;
    op.k = View<const bf16, 2>(queries[static_cast<std::size_t>(i % kCopies)].data(), count, 128);
    op.entries = {device_entries.data(), entries.size()};
    op.rows = call.rows;
    index_key_store(machine.device(), op);
  });
  time("compressor_pool", scale * kWidth * (8 + 1), [&](int i) {
    CompressorPool op;
    op.latent = View<bf16, 2>(latent.data(), count, kWidth);
    op.kv =
        View<const float, 2>(values[static_cast<std::size_t>(i % kCopies)].data(), rows, kWidth);
    op.score = View<const float, 2>(
        values[static_cast<std::size_t>((i + 1) % kCopies)].data(), rows, kWidth
    );
    op.carry = ring;
    op.ratio = 2;
    op.entries = {device_entries.data(), entries.size()};
    op.rows = call.rows;
    compressor_pool(machine.device(), op);
  });
  time("carry_store", 8.0 * kWidth * 16, [&](int i) {
    CarryStore op;
    op.carry = ring;
    op.kv =
        View<const float, 2>(values[static_cast<std::size_t>(i % kCopies)].data(), rows, kWidth);
    op.score = op.kv;
    op.rows = call.rows;
    carry_store(machine.device(), op);
  });
}

}  // namespace

void bench_index(const BenchReport& report) {
  Machine machine;
  constexpr int64_t kK = 1024;
  for (const std::array<int64_t, 3>& step : std::initializer_list<std::array<int64_t, 3>>{
           {1, 1, 16 * kK},
           {1, 1, 128 * kK},
           {1, 1, 1024 * kK},
           {1, 6, 128 * kK},
           {64, 1, 64 * kK},
           {100, 1, 32 * kK},
           {16, 6, 64 * kK},
           {1, 512, 64 * kK},
           {1, 2048, 16 * kK}}) {
    bench_steps(report, machine, step[0], step[1], step[2]);
  }
  for (const int64_t rows : {1, 64, 4096})
    bench_row_ops(report, machine, rows);
}

}  // namespace di::ops::cuda
