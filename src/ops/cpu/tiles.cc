#include "ops/cpu/tiles.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace di::ops::cpu {

Q8Path q8_path(const Kernels& kernels, WeightFormat format, int64_t rows) {
  if (format == WeightFormat::kFp4) return {kernels.q8_fp4, kernels};
  DI_CHECK(format == WeightFormat::kFp8, "quantised activations meet FP4 or FP8 weights");
  return {rows < kernels.fp8_many_rows ? kernels.q8_fp8_few : kernels.q8_fp8_many, kernels};
}

void prepare_rows(Exec& exec, const Q8Path& path, const Q8View& x, RowRange rows, std::byte* out) {
  constexpr int64_t kPieceBlocks = 32;  // even a single row is work for several threads
  const int64_t blocks = x.scales.dim(1);
  const int64_t pieces = ceil_div(blocks, kPieceBlocks);
  const int64_t row_bytes = path.row_bytes(blocks * kScaleGroup);
  const auto prepare = [&](int64_t row, int64_t piece) {
    const int64_t first = piece * kPieceBlocks;
    const int64_t count = std::min(kPieceBlocks, blocks - first);
    path.prepare(
        x.codes.row(row) + first * kScaleGroup,
        x.scales.row(row) + first,
        count * kScaleGroup,
        out + (row - rows.begin) * row_bytes + path.row_bytes(first * kScaleGroup)
    );
  };
  exec.pool.parallel_for((rows.end - rows.begin) * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      prepare(rows.begin + i / pieces, i % pieces);
  });
}

TileKernel linear_kernel(const Kernels& kernels, WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return kernels.linear_bf16;
    case WeightFormat::kF32: return kernels.linear_f32;
    case WeightFormat::kFp8: return kernels.linear_fp8;
    case WeightFormat::kFp4: break;
  }
  DI_CHECK(false, "bf16 activations do not meet FP4 weights");
  return nullptr;
}

int64_t grain_for(int64_t count, int num_threads) {
  return std::clamp<int64_t>(count / (num_threads * 8), 1, 8);
}

}  // namespace di::ops::cpu
