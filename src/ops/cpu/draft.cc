#include "ops/cpu/draft.h"

#include <algorithm>
#include <limits>

#include "base/math.h"
#include "ops/cpu/tiles.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

constexpr int64_t kPieceTiles = 16;  // of the vocabulary, that a thread takes at a time

/// The best token of a piece of the vocabulary.
struct Best {
  float logit = -std::numeric_limits<float>::infinity();
  int32_t token = 0;

  /// Takes a later token when it is better.
  void meet(const Best& other) {
    if (other.logit > logit) *this = other;
  }
};

/// The rows of a round, prepared.
struct PreparedRows {
  const std::byte* data;
  int64_t row_bytes;
};

PreparedRows prepare(Exec& exec, const MarkovRound& op) {
  const int64_t row_bytes = double_row_bytes(op.head.cols);
  auto* data = exec.scratch.take<std::byte>(op.logits.dim(0) * row_bytes);
  for (int64_t row = 0; row < op.logits.dim(0); ++row)
    prepare_double(ref::take_previous(op, row), op.head.cols, data + row * row_bytes);
  return {data, row_bytes};
}

/// Adds the bias of one tile's tokens to `rows` of the logits; best[row] meets each of them.
void run_tile(
    TileKernel kernel,
    const MarkovRound& op,
    const PreparedRows& prepared,
    int64_t tile,
    RowRange rows,
    Best* best
) {
  float bias[kMaxRows * kTileRows];
  const std::byte* x[kMaxRows];
  const auto count = static_cast<int>(rows.end - rows.begin);
  for (int i = 0; i < count; ++i)
    x[i] = prepared.data + (rows.begin + i) * prepared.row_bytes;
  kernel({tile_of(op.head, tile), op.head.cols, x, count, bias});
  const int64_t begin = tile * kTileRows;
  const int64_t end = std::min(op.head.rows, begin + kTileRows);
  for (int i = 0; i < count; ++i) {
    for (int64_t v = begin; v < end; ++v) {
      float& logit = op.logits(rows.begin + i, v);
      logit += bias[i * kTileRows + v - begin];
      best[rows.begin + i].meet({logit, static_cast<int32_t>(v)});
    }
  }
}

}  // namespace

void markov_round(const Kernels& kernels, Exec& exec, const MarkovRound& op) {
  const Arena::Scope scope(exec.scratch);
  const int64_t rows = op.logits.dim(0);
  const PreparedRows prepared = prepare(exec, op);
  const TileKernel kernel = linear_kernel(kernels, op.head.format);
  const int64_t tiles = ceil_div(op.head.rows, int64_t{kTileRows});
  const int64_t pieces = ceil_div(tiles, kPieceTiles);
  const auto best = exec.scratch.array<Best>(pieces, rows);
  const RowChunks chunks(rows);
  exec.pool.parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece) {
      std::fill_n(best.row(piece), rows, Best{});
      const int64_t end = std::min(tiles, (piece + 1) * kPieceTiles);
      for (int64_t tile = piece * kPieceTiles; tile < end; ++tile) {
        for (int64_t chunk = 0; chunk < chunks.chunks; ++chunk)
          run_tile(kernel, op, prepared, tile, chunks[chunk], best.row(piece));
      }
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    Best all;
    for (int64_t piece = 0; piece < pieces; ++piece)
      all.meet(best(piece, row));
    op.best(row) = all.token;
  }
}

}  // namespace di::ops::cpu
