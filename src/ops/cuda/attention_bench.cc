// Sparse attention at the real sizes: decode rows, verify rows and prefill, and the stores around
// it.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "ops/cuda/attention.h"
#include "ops/cuda/benchmarks.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"

namespace di::ops::cuda {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kDim = 512;
constexpr int64_t kWindow = 128;
constexpr int64_t kRing = kWindow + 6;
constexpr int64_t kSelected = 512;
constexpr int64_t kPerBlock = 64;  // ratio 2
constexpr int64_t kRecordBytes = 288;
constexpr int64_t kWindowBytes = 528;

/// Sequences of the model's size with full caches; every call takes other ones, as far as there
/// are.
class Workload {
 public:
  Workload(int64_t sequences, int64_t rows_each, int64_t entries)
      : rows_each_(rows_each), rows_(sequences * rows_each), random_(7) {
    const int64_t blocks = (entries + kPerBlock - 1) / kPerBlock;
    compressed_ = records(sequences * blocks * kPerBlock, kRecordBytes, 256, 30, 60);
    ring_ = records(sequences * kRing, kWindowBytes, kDim, 116, 122);
    window_ = records(rows_, kWindowBytes, kDim, 116, 122);
    std::vector<int32_t> table(static_cast<std::size_t>(sequences * blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    tables_ = upload(table);
    std::vector<SequenceRows> all;
    std::vector<int32_t> sequence_of;
    std::vector<int64_t> positions;
    std::vector<int32_t> selected;
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t start = entries * 2 + 4;
      all.push_back(
          {.first_row = s * rows_each,
           .num_rows = rows_each,
           .start = start,
           .slot = s,
           .block_table = reinterpret_cast<const int32_t*>(tables_.get()) + s * blocks}
      );
      std::vector<int32_t> chosen = choose(entries);
      for (int64_t i = 0; i < rows_each; ++i) {
        sequence_of.push_back(static_cast<int32_t>(s));
        positions.push_back(start + i);
        // Neighbouring rows choose mostly the same entries.
        if (i % 16 == 15) chosen = choose(entries);
        selected.insert(selected.end(), chosen.begin(), chosen.end());
      }
    }
    sequences_ = upload(all);
    sequence_of_ = upload(sequence_of);
    positions_ = upload(positions);
    selected_ = upload(selected);
    std::vector<bf16> q(1 << 20);
    std::normal_distribution<float> normal;
    for (bf16& x : q)
      x = to_bf16(normal(random_));
    q_ = repeated(q.data(), std::ssize(q) * 2, rows_ * kHeads * kDim * 2);
    o_ = device_memory().allocate(rows_ * kHeads * kDim * 2, "a benchmark");
    sink_ = upload(std::vector<float>(kHeads, 1.0f));
    num_sequences_ = sequences;
  }

  /// Call number i of `rows` rows.
  SparseAttention call(int i, int64_t rows) const {
    const int64_t first = i * rows % (rows_ - rows + 1) / rows_each_ * rows_each_;
    SparseAttention op;
    op.o = View<bf16, 3>(at<bf16>(o_) + first * kHeads * kDim, rows, kHeads, kDim);
    op.q = View<const bf16, 3>(at<bf16>(q_) + first * kHeads * kDim, rows, kHeads, kDim);
    op.window_records = View<const uint8_t, 2>(at<uint8_t>(window_), rows_, kWindowBytes);
    op.ring = {ring_.get(), kRing * kWindowBytes, kRing, kWindowBytes};
    op.window = kWindow;
    op.compressed = {compressed_.get(), kPerBlock * kRecordBytes, kPerBlock, kRecordBytes};
    op.selected =
        View<const int32_t, 2>(at<int32_t>(selected_) + first * kSelected, rows, kSelected);
    op.sink = View<const float, 1>(at<float>(sink_), kHeads);
    op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kDim)));
    op.rows.sequences = {at<SequenceRows>(sequences_), static_cast<std::size_t>(num_sequences_)};
    op.rows.sequence_of = View<const int32_t, 1>(at<int32_t>(sequence_of_) + first, rows);
    op.rows.positions = View<const int64_t, 1>(at<int64_t>(positions_) + first, rows);
    return op;
  }

 private:
  using Memory = std::shared_ptr<std::byte>;

  template <class T>
  static T* at(const Memory& memory) {
    return reinterpret_cast<T*>(memory.get());
  }

  template <class T>
  static Memory upload(const std::vector<T>& values) {
    return repeated(values.data(), std::ssize(values) * sizeof(T), std::ssize(values) * sizeof(T));
  }

  /// `bytes` on the device, filled with copies of `part`.
  static Memory repeated(const void* part, int64_t part_bytes, int64_t bytes) {
    Memory memory = device_memory().allocate(bytes, "a benchmark");
    for (int64_t done = 0; done < bytes; done += part_bytes) {
      const auto size = static_cast<std::size_t>(std::min(part_bytes, bytes - done));
      check(cudaMemcpy(memory.get() + done, part, size, cudaMemcpyDefault), "upload");
    }
    return memory;
  }

  Memory records(int64_t count, int64_t bytes, int64_t codes, int low, int high) {
    std::vector<uint8_t> part(static_cast<std::size_t>(1024 * bytes));
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto value = static_cast<uint32_t>(random_() >> 8);
      const bool scale = static_cast<int64_t>(i) % bytes >= codes;
      part[i] = static_cast<uint8_t>(
          scale ? low + static_cast<int>(value) % (high - low + 1) : static_cast<int>(value & 0xf7)
      );
    }
    return repeated(part.data(), std::ssize(part), count * bytes);
  }

  std::vector<int32_t> choose(int64_t entries) {
    std::vector<int32_t> all(static_cast<std::size_t>(entries));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(kSelected);
    std::sort(all.begin(), all.end());
    return all;
  }

  int64_t rows_each_;
  int64_t rows_;
  int64_t num_sequences_ = 0;
  std::mt19937 random_;
  Memory compressed_, ring_, window_, tables_, sequences_, sequence_of_, positions_, selected_;
  Memory q_, o_, sink_;
};

void bench_rows(
    const BenchReport& report,
    cudaStream_t stream,
    const Workload& workload,
    const char* shape,
    int64_t rows,
    int64_t distinct_keys
) {
  ThreadPool pool(1);
  Arena scratch(device_memory());
  Exec exec{pool, scratch, nullptr, stream};
  const double microseconds = measure(stream, rows > 1000 ? 4 : 32, [&](int i) {
    sparse_attention(exec, workload.call(i, rows));
  });
  const double keys = kWindow + kSelected;
  const double bytes =
      static_cast<double>(distinct_keys) * (kWindow * kWindowBytes + kSelected * kRecordBytes) +
      static_cast<double>(rows * kHeads * kDim * 4);
  const double flops = static_cast<double>(rows * kHeads * kDim) * keys * 4;
  report({"sparse_attention", shape, rows, microseconds, bytes, flops});
}

}  // namespace

void bench_attention(const BenchReport& report) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  {
    const Workload decode(512, 1, 1024);
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 132, 264, 512})
      bench_rows(report, stream, decode, "64 heads, 128 + 512 keys, decode", rows, rows);
  }
  {
    const Workload verify(256, 6, 1024);
    for (const int64_t sequences : {1, 4, 64}) {
      bench_rows(report, stream, verify, "the same, 6 rows a sequence", sequences * 6, sequences);
    }
  }
  {
    const Workload prefill(1, 16384, 16384);
    for (const int64_t rows : {1024, 4096})
      bench_rows(report, stream, prefill, "the same, prefill", rows, rows / 16);
  }
  cudaStreamDestroy(stream);
}

}  // namespace di::ops::cuda
