// The loops behind RowKernels, for the files of isa/ only: each includes this once and gives the
// result its instruction set's name.
#pragma once

#include <limits>

#include "sampling/fixed_exp.h"
#include "sampling/row_kernels.h"

namespace di::sampling {
namespace {

#if defined(__AVX512F__)
inline constexpr std::size_t kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr std::size_t kRegisterBytes = 32;
#else
inline constexpr std::size_t kRegisterBytes = 16;
#endif
inline constexpr std::size_t kLanes = 16;        ///< sums that run side by side
inline constexpr std::size_t kBlock = 128;       ///< entries that are looked at together
inline constexpr std::size_t kScanBlock = 4096;  ///< the same, for the best entry

inline std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

/// What is known of some entries of a row.
template <typename T>
struct Scan {
  T best = -std::numeric_limits<T>::infinity();
  bool all_numbers = true;  ///< none is a NaN or +∞
};

template <typename T>
Scan<T> scan(const T* row, std::size_t size) {
  // A register of values by name: the compiler finds this loop too hard to see through.
  using Lanes [[gnu::vector_size(kRegisterBytes)]] = T;
  constexpr std::size_t kCount = kRegisterBytes / sizeof(T);
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  Lanes best = Lanes{} - kInfinity;
  auto numbers = best < kInfinity;
  for (std::size_t at = 0; at < size; at += kCount) {
    Lanes values = Lanes{} - kInfinity;
    if (at + kCount <= size) {
      __builtin_memcpy(&values, row + at, sizeof(values));
    } else {
      for (std::size_t lane = 0; at + lane < size; ++lane)
        values[lane] = row[at + lane];
    }
    best = best < values ? values : best;
    numbers &= values < kInfinity;
  }
  Scan<T> result;
  for (std::size_t lane = 0; lane < kCount; ++lane) {
    result.best = result.best < best[lane] ? best[lane] : result.best;
    result.all_numbers = result.all_numbers && numbers[lane] != 0;
  }
  return result;
}

template <typename T>
Peak peak(const T* row, std::size_t size) {
  T best = -std::numeric_limits<T>::infinity();
  std::size_t best_block = 0;
  for (std::size_t at = 0; at < size; at += kScanBlock) {
    const Scan<T> block = scan(row + at, smaller(size - at, kScanBlock));
    if (!block.all_numbers) return {};
    if (block.best > best) {
      best = block.best;
      best_block = at;
    }
  }
  if (!(best > -std::numeric_limits<T>::infinity())) return {};
  std::size_t index = best_block;
  while (row[index] != best)
    ++index;
  return {true, index, static_cast<double>(best)};
}

inline double sum_exp(const float* row, std::size_t size, double top) {
  double sums[kLanes] = {};
  for (std::size_t at = 0; at < size; at += kBlock) {
    const std::size_t count = smaller(size - at, kBlock);
    double terms[kBlock] = {};
    for (std::size_t i = 0; i < count; ++i)
      terms[i] = exp_of_minus(top - static_cast<double>(row[at + i]));
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += terms[i + lane];
    }
  }
  double total = 0;
  for (const double sum : sums)
    total += sum;
  return total;
}

inline Masses weigh(const double* row, std::size_t size, const MassScale& scale, uint64_t floor) {
  Masses masses;
  const double top = scale.top;
  const double inverse_temperature = scale.inverse_temperature;
  for (std::size_t i = 0; i < size; ++i) {
    const uint64_t mass = mass_of((top - row[i]) * inverse_temperature);
    masses.all += mass;
    masses.above_floor += mass >= floor ? mass : 0;
  }
  return masses;
}

inline void weigh_each(
    const double* row, std::size_t size, const MassScale& scale, uint64_t* masses
) {
  const double top = scale.top;
  const double inverse_temperature = scale.inverse_temperature;
  for (std::size_t i = 0; i < size; ++i)
    masses[i] = mass_of((top - row[i]) * inverse_temperature);
}

inline std::size_t gather(
    const double* row, std::size_t size, const MassScale& scale, const Band& band, int32_t* out
) {
  std::size_t found = 0;
  for (std::size_t at = 0; at < size; at += kBlock) {
    const std::size_t count = smaller(size - at, kBlock);
    int hits[kBlock];
    int any = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double x = (scale.top - row[at + i]) * scale.inverse_temperature;
      hits[i] = (band.low <= x ? 1 : 0) & (x < band.high ? 1 : 0);
      any |= hits[i];
    }
    for (std::size_t i = 0; any != 0 && i < count; ++i) {
      out[found] = static_cast<int32_t>(at + i);  // kept when it is a hit, else written over
      found += static_cast<std::size_t>(hits[i]);
    }
  }
  return found;
}

inline RowKernels kernels_named(const char* name) {
  return {name, peak<float>, peak<double>, sum_exp, weigh, weigh_each, gather};
}

}  // namespace
}  // namespace di::sampling
