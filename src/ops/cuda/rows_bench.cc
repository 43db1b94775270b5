// Row kernels at the sizes of the model: bytes that must move, against the read rate.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/engram.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/row_moves.h"

namespace di::ops::cuda {
namespace {

constexpr int64_t kHidden = 5120;
constexpr int64_t kStreams = 4;
constexpr int64_t kMixes = 24;
constexpr int64_t kVocab = 129280;
constexpr int64_t kBeyondCache = int64_t{160} << 20;  ///< bytes that operands rotate over

/// `bytes` on the device made of normal bf16 numbers.
std::shared_ptr<std::byte> random_numbers(int64_t bytes) {
  static const std::vector<bf16> pool = [] {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<bf16> values(1 << 20);
    for (bf16& value : values)
      value = to_bf16(normal(random));
    return values;
  }();
  auto data = device_memory().allocate(bytes, "a benchmark");
  const int64_t pool_bytes = std::ssize(pool) * 2;
  for (int64_t at = 0; at < bytes; at += pool_bytes) {
    const auto count = static_cast<std::size_t>(std::min(pool_bytes, bytes - at));
    check(cudaMemcpy(data.get() + at, pool.data(), count, cudaMemcpyDefault), "upload");
  }
  return data;
}

template <class T>
std::shared_ptr<std::byte> uploaded(const std::vector<T>& values) {
  const auto bytes = values.size() * sizeof(T);
  auto data = device_memory().allocate(static_cast<int64_t>(bytes), "a benchmark");
  check(cudaMemcpy(data.get(), values.data(), bytes, cudaMemcpyDefault), "upload");
  return data;
}

/// An array for each of `sets` turns.
template <class T>
class Turns {
 public:
  Turns(int64_t sets, int64_t count)
      : count_(count), sets_(sets), data_(random_numbers(sets * count * int64_t{sizeof(T)})) {}
  T* at(int64_t turn) const { return reinterpret_cast<T*>(data_.get()) + turn % sets_ * count_; }

 private:
  int64_t count_;
  int64_t sets_;
  std::shared_ptr<std::byte> data_;
};

/// Runs and reports ops on one stream.
class RowsBench {
 public:
  explicit RowsBench(const BenchReport& report) : report_(report) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    exec_.stream = stream_;
  }
  ~RowsBench() { cudaStreamDestroy(stream_); }

  Exec& exec() { return exec_; }
  static int64_t turns(int64_t bytes) { return std::clamp<int64_t>(kBeyondCache / bytes, 2, 64); }

  void run(
      const char* op,
      const char* shape,
      int64_t rows,
      int64_t bytes,
      const std::function<void(int)>& enqueue
  ) {
    const int repeats = rows >= 1024 ? 10 : 40;
    const double time = measure(stream_, repeats, enqueue);
    report_(
        {.op = op,
         .shape = shape,
         .rows = rows,
         .microseconds = time,
         .bytes = static_cast<double>(bytes)}
    );
  }

 private:
  const BenchReport& report_;
  cudaStream_t stream_ = nullptr;
  ThreadPool pool_{1};
  Arena scratch_{device_memory()};
  Exec exec_{pool_, scratch_};
};

void bench_site(RowsBench& bench, int64_t rows) {
  const int64_t streams = rows * kHidden * kStreams * 2;
  const int64_t bytes = streams + rows * kHidden * 3 + rows * kHidden / 32 + rows * 52 * 4;
  const int64_t sets = RowsBench::turns(bytes);
  const Turns<bf16> h(sets, rows * kStreams * kHidden);
  const Turns<bf16> x(sets, rows * kHidden);
  const Turns<uint8_t> codes(sets, rows * kHidden);
  const Turns<uint8_t> scales(sets, rows * kHidden / 32);
  const Turns<float> small(1, rows * 52);
  const Turns<uint8_t> fn(32, packed_bytes(WeightFormat::kF32, kMixes, kStreams * kHidden));
  const auto factors = uploaded(std::vector<float>(kMixes, 0.01f));  // projections are about 140
  const auto* factor = reinterpret_cast<const float*>(factors.get());
  const Turns<bf16> norm(1, kHidden);
  const auto site = [&](int turn) {
    mhc_site(
        bench.exec(),
        {.mix =
             {.pre = View<float, 2>(small.at(0), rows, kStreams),
              .post = View<float, 2>(small.at(0) + rows * 4, rows, kStreams),
              .comb = View<float, 3>(small.at(0) + rows * 8, rows, kStreams, kStreams),
              .mixes = View<float, 2>(small.at(0) + rows * 24, rows, kMixes),
              .h = View<const bf16, 3>(h.at(turn), rows, kStreams, kHidden),
              .fn =
                  {.format = WeightFormat::kF32,
                   .rows = kMixes,
                   .cols = kStreams * kHidden,
                   .data = reinterpret_cast<const std::byte*>(fn.at(turn)),
                   .scales = nullptr},
              .scale = View<const float, 1>(factor, 3),
              .base = View<const float, 1>(factor, kMixes),
              .sinkhorn_iters = 0,  // as models ask for it
              .norm_eps = 1e-6f,
              .hc_eps = 1e-6f},
         .x = View<bf16, 2>(x.at(turn), rows, kHidden),
         .codes = View<uint8_t, 2>(codes.at(turn), rows, kHidden),
         .scales = View<uint8_t, 2>(scales.at(turn), rows, kHidden / 32),
         .a = View<const float, 2>(small.at(0) + rows * 48, rows, kStreams),
         .norm = View<const bf16, 1>(norm.at(0), kHidden)}
    );
  };
  bench.run("mhc_site", "4x5120", rows, bytes, site);
}

void bench_streams(RowsBench& bench, int64_t rows) {
  const int64_t stream = rows * kHidden * 2;
  const int64_t sets = RowsBench::turns(9 * stream);
  const Turns<bf16> h(sets, rows * kStreams * kHidden);
  const Turns<bf16> out(sets, rows * kStreams * kHidden);
  const Turns<bf16> x(sets, rows * kHidden);
  const Turns<float> a(1, rows * 4);
  const Turns<float> comb(1, rows * 16);
  const auto h_of = [&](int turn) {
    return View<const bf16, 3>(h.at(turn), rows, kStreams, kHidden);
  };
  const auto x_of = [&](int turn) { return View<bf16, 2>(x.at(turn), rows, kHidden); };
  const View<const float, 2> weights(a.at(0), rows, kStreams);
  bench.run("mhc_collapse", "4x5120", rows, 5 * stream, [&](int turn) {
    mhc_collapse(bench.exec(), {x_of(turn), h_of(turn), weights});
  });
  for (const int passes : {0, 20}) {
    const std::string shape = fmt::format("4x5120, {} passes", passes);
    bench.run("mhc_expand", shape.c_str(), rows, 9 * stream, [&](int i) {
      mhc_expand(
          bench.exec(),
          {.h_out = View<bf16, 3>(out.at(i), rows, kStreams, kHidden),
           .y = x_of(i),
           .h = h_of(i),
           .post = weights,
           .comb = View<const float, 3>(comb.at(0), rows, kStreams, kStreams),
           .sinkhorn_iters = passes,
           .hc_eps = 1e-6f}
      );
    });
  }
}

void bench_norm(RowsBench& bench, int64_t rows, int64_t width) {
  const int64_t bytes = rows * width * 4;
  const int64_t sets = RowsBench::turns(bytes);
  const Turns<bf16> x(sets, rows * width);
  const Turns<bf16> y(sets, rows * width);
  const Turns<bf16> weight(1, width);
  const std::string shape = fmt::format("x{}", width);
  bench.run("rms_norm", shape.c_str(), rows, bytes, [&](int turn) {
    rms_norm(
        bench.exec(),
        {.y = View<bf16, 2>(y.at(turn), rows, width),
         .x = View<const bf16, 2>(x.at(turn), rows, width),
         .weight = View<const bf16, 1>(weight.at(0), width),
         .eps = 1e-6f}
    );
  });
  auto* codes = reinterpret_cast<uint8_t*>(y.at(0));
  const int64_t quantized = rows * width * 3 + rows * width / 32;
  bench.run("quantize_fp8", shape.c_str(), rows, quantized, [&](int turn) {
    quantize_fp8(
        bench.exec(),
        {View<uint8_t, 2>(codes + turn % sets * rows * width, rows, width),
         View<uint8_t, 2>(reinterpret_cast<uint8_t*>(y.at(sets - 1)), rows, width / 32),
         View<const bf16, 2>(x.at(turn), rows, width)}
    );
  });
}

void bench_rope(RowsBench& bench, int64_t rows, int64_t heads) {
  constexpr int64_t kDim = 512, kPairs = 32;
  const int64_t bytes = rows * heads * kPairs * 2 * 2 * 2;
  const int64_t sets = std::min<int64_t>(RowsBench::turns(rows * heads * kDim * 2), 8);
  const Turns<bf16> x(sets, rows * heads * kDim);
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < rows; ++row)
    positions.push_back(row * 37 + 5000);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < kPairs; ++i)
    frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / kPairs));
  const auto p = uploaded(positions);
  const auto f = uploaded(frequencies);
  bench.run("rope", heads == 1 ? "1 head" : "64 heads", rows, bytes, [&](int turn) {
    rope(
        bench.exec(),
        {.x = View<bf16, 3>(x.at(turn), rows, heads, kDim),
         .positions = View<const int64_t, 1>(reinterpret_cast<const int64_t*>(p.get()), rows),
         .frequencies = View<const float, 1>(reinterpret_cast<const float*>(f.get()), kPairs)}
    );
  });
}

/// Rows that each are a sequence's only one, at the last of a few random tokens.
class DecodeRows {
 public:
  explicit DecodeRows(int64_t rows) : rows_(rows) {
    std::mt19937 random(9);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < rows * 8; ++i)
      tokens.push_back(static_cast<int32_t>(random() % kVocab));
    tokens_ = uploaded(tokens);
    std::vector<SequenceRows> sequences;
    std::vector<int32_t> sequence_of;
    for (int64_t row = 0; row < rows; ++row) {
      const auto* own = reinterpret_cast<const int32_t*>(tokens_.get()) + row * 8;
      sequences.push_back({.first_row = row, .num_rows = 1, .start = 7, .tokens = own});
      sequence_of.push_back(static_cast<int32_t>(row));
    }
    sequences_ = uploaded(sequences);
    sequence_of_ = uploaded(sequence_of);
    positions_ = uploaded(std::vector<int64_t>(static_cast<std::size_t>(rows), 7));
  }
  Rows view() const {
    return {
        .sequences =
            {reinterpret_cast<const SequenceRows*>(sequences_.get()),
             static_cast<std::size_t>(rows_)},
        .sequence_of =
            View<const int32_t, 1>(reinterpret_cast<const int32_t*>(sequence_of_.get()), rows_),
        .positions =
            View<const int64_t, 1>(reinterpret_cast<const int64_t*>(positions_.get()), rows_),
        .max_length = 8};
  }

 private:
  int64_t rows_;
  std::shared_ptr<std::byte> tokens_, sequences_, sequence_of_, positions_;
};

void bench_moves(RowsBench& bench, int64_t rows) {
  const int64_t stream = rows * kHidden * 2;
  const int64_t sets = RowsBench::turns(4 * stream);
  const Turns<bf16> h(sets, rows * kStreams * kHidden);
  const Turns<float> a(1, rows * 4);
  const Turns<bf16> table(1, kVocab * kHidden);
  const DecodeRows decode(rows);
  const auto finite = uploaded(std::vector<uint8_t>(static_cast<std::size_t>(rows), 1));
  bench.run("rows_finite", "4x5120", rows, 4 * stream, [&](int turn) {
    rows_finite(
        bench.exec(),
        {.finite = View<uint8_t, 1>(reinterpret_cast<uint8_t*>(finite.get()), rows),
         .h = View<const bf16, 3>(h.at(turn), rows, kStreams, kHidden),
         .rows = decode.view()}
    );
  });
  bench.run("embed", "4x5120", rows, 5 * stream, [&](int turn) {
    embed(
        bench.exec(),
        {.h = View<bf16, 3>(h.at(turn), rows, kStreams, kHidden),
         .a = View<float, 2>(a.at(0), rows, kStreams),
         .table = View<const bf16, 2>(table.at(0), kVocab, kHidden),
         .given = {},
         .rows = decode.view()}
    );
  });
}

void bench_engram(RowsBench& bench, int64_t rows) {
  constexpr int64_t kLookups = 24, kDim = 256, kTableRows = 1 << 21;
  std::mt19937_64 random(3);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < rows * kLookups; ++i)
    drawn.push_back(static_cast<int64_t>(random() % kTableRows));
  const auto ids = uploaded(drawn);
  const auto device_codes = random_numbers(kTableRows * kDim);
  const auto device_scales = random_numbers(kTableRows * kDim / 32);
  constexpr int64_t kPinnedRows = kTableRows / 8;
  const auto pinned = pinned_memory().allocate(kPinnedRows * (kDim + 8), "a benchmark");
  std::fill_n(reinterpret_cast<uint8_t*>(pinned.get()), kPinnedRows * (kDim + 8), uint8_t{0x38});
  for (int64_t& id : drawn)
    id %= kPinnedRows;
  const auto pinned_ids = uploaded(drawn);
  const Turns<bf16> y(1, rows * kLookups * kDim);
  const auto lookup = [&](const std::shared_ptr<std::byte>& which,
                          const std::byte* codes,
                          const std::byte* scales) {
    engram_lookup(
        bench.exec(),
        {.y = View<bf16, 2>(y.at(0), rows, kLookups * kDim),
         .ids =
             View<const int64_t, 2>(reinterpret_cast<const int64_t*>(which.get()), rows, kLookups),
         .table =
             {reinterpret_cast<const uint8_t*>(codes),
              reinterpret_cast<const uint8_t*>(scales),
              kTableRows,
              kDim}}
    );
  };
  const int64_t bytes = rows * kLookups * (kDim * 3 + 8);
  bench.run("engram_lookup", "24x256 device", rows, bytes, [&](int) {
    lookup(ids, device_codes.get(), device_scales.get());
  });
  bench.run(
      "engram_lookup",
      "24x256 pinned (bus bytes)",
      rows,
      rows * kLookups * (kDim + 8),
      [&](int) { lookup(pinned_ids, pinned.get(), pinned.get() + kPinnedRows * kDim); }
  );
  const DecodeRows decode(rows);
  const auto map = uploaded(std::vector<int32_t>(static_cast<std::size_t>(kVocab), 77));
  const auto constants = uploaded(std::vector<int64_t>(64, 16000057));
  const auto* constant = reinterpret_cast<const int64_t*>(constants.get());
  const Turns<int64_t> hashes(1, rows * kLookups);
  bench.run("engram_hash", "24 lookups", rows, rows * kLookups * 8, [&](int) {
    engram_hash(
        bench.exec(),
        {.ids = View<int64_t, 2>(hashes.at(0), rows, kLookups),
         .token_map = View<const int32_t, 1>(reinterpret_cast<const int32_t*>(map.get()), kVocab),
         .multipliers = View<const int64_t, 1>(constant, 4),
         .primes = View<const int64_t, 1>(constant, kLookups),
         .offsets = View<const int64_t, 1>(constant, kLookups),
         .pad = 2,
         .rows = decode.view()}
    );
  });
  const int64_t stream = rows * kHidden * 2;
  const int64_t sets = RowsBench::turns(13 * stream);
  const Turns<bf16> h(sets, rows * kStreams * kHidden);
  const Turns<bf16> kv(sets, rows * (kStreams + 1) * kHidden);
  const Turns<bf16> weights(1, kStreams * kHidden);
  bench.run("engram_gate", "4x5120", rows, 13 * stream, [&](int turn) {
    engram_gate(
        bench.exec(),
        {.h = View<bf16, 3>(h.at(turn), rows, kStreams, kHidden),
         .kv = View<const bf16, 2>(kv.at(turn), rows, (kStreams + 1) * kHidden),
         .q_weight = View<const bf16, 2>(weights.at(0), kStreams, kHidden),
         .k_weight = View<const bf16, 2>(weights.at(0), kStreams, kHidden),
         .is_image = {},
         .gate = {}}
    );
  });
}

}  // namespace

void bench_rows(const BenchReport& report) {
  RowsBench bench(report);
  for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 1024, 4096})
    bench_site(bench, rows);
  for (const int64_t rows : {1, 32, 1024, 4096})
    bench_streams(bench, rows);
  for (const int64_t rows : {1, 64, 4096}) {
    bench_norm(bench, rows, kHidden);
    bench_norm(bench, rows, 1280);
    bench_norm(bench, rows, 512);
    bench_rope(bench, rows, 64);
    bench_rope(bench, rows, 1);
    bench_moves(bench, rows);
    bench_engram(bench, rows);
  }
}

}  // namespace di::ops::cuda
