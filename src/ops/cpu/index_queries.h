// The indexer's queries in the form that its kernels multiply.
#pragma once

#include "ops/cpu/index_kernels.h"
#include "ops/indexer.h"
#include "tensor/arena.h"

namespace di::ops::cpu {

/// Whether the kernels' int32 and fp32 hold every dot product of these vectors exactly, `groups`
/// groups of columns each.
bool is_exact(const Spread& keys, const Spread& query, int64_t groups);

/// The queries of some rows, in memory of an arena.
class IndexQueries {
 public:
  IndexQueries(Arena& scratch, const IndexSelect& op, int64_t rows);

  /// Prepares row `row` of the op as query `i`.
  void prepare(int64_t i, int64_t row);

  IndexQuery query(int64_t i) const;
  const Spread& spread(int64_t i) const { return spreads_(i); }
  int64_t heads() const { return heads_; }
  int64_t dim() const { return dim_; }

 private:
  void prepare_values(const uint8_t* codes, int8_t* values, int32_t* bias) const;
  void prepare_scales(int64_t i, int64_t head, const uint8_t* scales);

  const IndexSelect& op_;
  int64_t heads_;
  int64_t dim_;
  View<int8_t, 3> values_;
  View<int32_t, 3> bias_;
  View<int32_t, 3> shifts_;
  View<float, 2> units_;
  View<float, 2> weights_;
  View<Spread, 1> spreads_;
};

}  // namespace di::ops::cpu
