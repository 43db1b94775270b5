// Small integer arithmetic, and the checked form for sizes that come from a file.
#pragma once

#include <cstdint>
#include <optional>

namespace di {

/// ⌈a / b⌉ for a ≥ 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// The smallest multiple of `unit` that is ≥ a.
constexpr int64_t align_up(int64_t a, int64_t unit) {
  return ceil_div(a, unit) * unit;
}

/// a · b, or nothing when it leaves int64. Use it on every size that a file states.
constexpr std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing when it leaves int64.
constexpr std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace di
