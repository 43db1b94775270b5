#include "ops/cpu/index_queries.h"

#include <algorithm>
#include <bit>

namespace di::ops::cpu {

bool is_exact(const Spread& keys, const Spread& query, int64_t groups) {
  constexpr int64_t kLargestGroupSum = 12 * 12 * kIndexGroup;
  constexpr int kUnitBias = 256;  // 127 for each scale, 1 for the halves of each
  const int shift = keys.shift + query.shift;
  const bool fits = shift <= 16 && (groups * kLargestGroupSum << shift) <= 0x7fffffff;
  const bool normal = keys.low >= 2 && query.low >= 2 && keys.low + query.low >= kUnitBias - 126;
  const bool finite =
      keys.high + query.high <= kUnitBias + 100 && std::max(keys.high, query.high) < 255;
  return fits && normal && finite;
}

IndexQueries::IndexQueries(Arena& scratch, const IndexSelect& op, int64_t rows)
    : op_(op),
      heads_(op.q_codes.dim(1)),
      dim_(op.q_codes.dim(2) * 2),
      values_(scratch.array<int8_t>(rows, heads_, dim_)),
      bias_(scratch.array<int32_t>(rows, heads_, dim_ / kIndexGroup)),
      shifts_(scratch.array<int32_t>(rows, heads_, dim_ / kIndexGroup)),
      units_(scratch.array<float>(rows, heads_)),
      weights_(scratch.array<float>(rows, heads_)),
      spreads_(scratch.array<Spread>(rows)) {}

void IndexQueries::prepare(int64_t i, int64_t row) {
  spreads_(i) = {.low = 255, .high = 0, .shift = 0};
  for (int64_t head = 0; head < heads_; ++head) {
    weights_(i, head) = to_float(op_.head_weights(row, head));
    prepare_values(&op_.q_codes(row, head, 0), &values_(i, head, 0), &bias_(i, head, 0));
    prepare_scales(i, head, &op_.q_scales(row, head, 0));
  }
}

IndexQuery IndexQueries::query(int64_t i) const {
  return {
      .values = values_.row(i),
      .bias = bias_.row(i),
      .shifts = shifts_.row(i),
      .units = units_.row(i),
      .weights = weights_.row(i)};
}

void IndexQueries::prepare_values(const uint8_t* codes, int8_t* values, int32_t* bias) const {
  constexpr int8_t kHalves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int64_t group = 0; group < dim_ / kIndexGroup; ++group) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kIndexGroup; ++i) {
      const int64_t column = group * kIndexGroup + query_column(i);
      const int8_t value = kHalves[nibble(codes, column)];
      values[group * kIndexGroup + i] = value;
      sum += value;
    }
    bias[group] = -12 * sum;
  }
}

/// As the kernels do for keys: groups of zeros do not count.
void IndexQueries::prepare_scales(int64_t i, int64_t head, const uint8_t* scales) {
  const int8_t* values = &values_(i, head, 0);
  int32_t* shifts = &shifts_(i, head, 0);
  const int64_t groups = dim_ / kIndexGroup;
  const auto is_zero = [&](int64_t group) {
    const int8_t* first = values + group * kIndexGroup;
    return std::all_of(first, first + kIndexGroup, [](int8_t value) { return value == 0; });
  };
  int32_t low = 256;
  int32_t high = 0;
  for (int64_t group = 0; group < groups; ++group) {
    shifts[group] = is_zero(group) ? -1 : scales[group];
    if (shifts[group] < 0) continue;
    low = std::min(low, shifts[group]);
    high = std::max(high, shifts[group]);
  }
  if (low > high) low = high = 127;
  for (int64_t group = 0; group < groups; ++group)
    shifts[group] = shifts[group] < 0 ? 0 : shifts[group] - low;
  units_(i, head) = std::bit_cast<float>(static_cast<uint32_t>(low - 1) << 23);
  Spread& spread = spreads_(i);
  spread.low = std::min(spread.low, low);
  spread.high = std::max(spread.high, high);
  spread.shift = std::max(spread.shift, high - low);
}

}  // namespace di::ops::cpu
