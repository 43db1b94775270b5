// Parallel loops over the rows of an op.
#pragma once

#include "base/math.h"
#include "ops/exec.h"

namespace di::ops::cpu {

/// Calls run(RowRange) over ranges that cover [0, rows).
template <class Run>
void split_rows(Exec& exec, int64_t rows, const Run& run) {
  const int64_t grain = rows / (exec.pool.num_threads() * 4) + 1;
  exec.pool.parallel_for(rows, grain, [&run](int64_t begin, int64_t end) {
    run(RowRange{begin, end});
  });
}

/// Calls run(row, begin, end) over slices of the columns of each row: whole rows when there are
/// enough for all threads, else slices of at least `least` columns. `width` and `least` are
/// multiples of 32, and so are the slices' borders.
template <class Run>
void split_columns(Exec& exec, int64_t rows, int64_t width, int64_t least, const Run& run) {
  const int64_t threads = exec.pool.num_threads();
  const int64_t wanted = rows >= threads ? 1 : ceil_div(threads, rows > 0 ? rows : 1);
  const int64_t slices = wanted * least <= width ? wanted : (width < least ? 1 : width / least);
  const int64_t step = align_up(ceil_div(width, slices), 32);
  const int64_t pieces = ceil_div(width, step);
  split_rows(exec, rows * pieces, [&](RowRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t begin = i % pieces * step;
      run(i / pieces, begin, begin + step < width ? begin + step : width);
    }
  });
}

}  // namespace di::ops::cpu
