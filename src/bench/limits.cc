#include "bench/limits.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include <immintrin.h>

#include "bench/big_memory.h"

namespace di::bench {
namespace {

/// Accumulators enough to hide the latency of a multiply-add.
constexpr int kChains = 12;
constexpr int64_t kFmaRounds = 200'000;

__attribute__((target("avx2,fma"))) float fma_avx2() {
  __m256 sums[kChains];
  for (auto& sum : sums)
    sum = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.999f);
  for (int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm256_fmadd_ps(sums[i], factor, factor);
  }
  for (int i = 1; i < kChains; ++i)
    sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f"))) float fma_avx512() {
  __m512 sums[kChains];
  for (auto& sum : sums)
    sum = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.999f);
  for (int64_t round = 0; round < kFmaRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_fmadd_ps(sums[i], factor, factor);
  }
  for (int i = 1; i < kChains; ++i)
    sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

uint64_t read_all(const uint64_t* words, int64_t count) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    for (int j = 0; j < 8; ++j)
      sums[j] ^= words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums)
    total ^= sum;
  return total;
}

}  // namespace

double measure_read(ThreadPool& pool, int64_t bytes, const Patience& patience) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const int64_t pieces = std::max<int64_t>(1, bytes / kPiece);
  const BigMemory memory(pieces * kPiece);
  const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
  std::atomic<uint64_t> sink{0};
  pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    std::memset(
        memory.data() + begin * kPiece, 1, static_cast<std::size_t>((end - begin) * kPiece)
    );
  });
  // A turn is the next sixteenth of the memory, so that the caches have forgotten it by then.
  const int64_t turn = std::max<int64_t>(1, pieces / 16);
  int64_t at = 0;
  const Times times = time_calls(patience, [&] {
    pool.parallel_for(turn, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sink ^= read_all(words + (at + i) % pieces * kPiece / 8, kPiece / 8);
    });
    at += turn;
  });
  return static_cast<double>(turn * kPiece) / times.best_s * 1e-9;
}

double measure_fma(ThreadPool& pool, Isa isa, const Patience& patience) {
  const int64_t lanes = isa == Isa::kAvx2 ? 8 : 16;
  const int64_t pieces = int64_t{4} * pool.num_threads();
  std::atomic<float> sink{0};
  const Times times = time_calls(patience, [&] {
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sink = isa == Isa::kAvx2 ? fma_avx2() : fma_avx512();
    });
  });
  const double operations = 2.0 * static_cast<double>(pieces * lanes * kChains * kFmaRounds);
  return operations / times.best_s * 1e-9;
}

Limits measure_limits(ThreadPool& pool, Isa isa) {
  return {measure_read(pool, int64_t{512} << 20), measure_fma(pool, isa)};
}

}  // namespace di::bench
