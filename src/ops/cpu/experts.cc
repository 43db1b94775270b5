#include "ops/cpu/experts.h"

#include <algorithm>

#include "base/math.h"
#include "ops/cpu/tiles.h"

namespace di::ops::cpu {
namespace {

/// One use of an expert: a row and its routing weight.
struct Use {
  int32_t row;
  float weight;
};

/// At most kMaxRows uses of one expert, the unit of work in the direction of rows.
struct Chunk {
  const ExpertWeights* expert;
  bool shared;    // no routing weight
  int64_t first;  // use
  int num_rows;
};

/// The step's uses, ordered by expert (and by row within one), the shared expert last; so a row's
/// experts stand in the order in which they are summed.
struct Plan {
  Use* uses;
  Chunk* chunks;
  int64_t num_uses = 0;
  int64_t num_chunks = 0;

  void add_chunks(const ExpertWeights& expert, bool shared, int64_t first, int64_t count) {
    if (count == 0) return;
    const RowChunks parts(count);
    for (int64_t i = 0; i < parts.chunks; ++i) {
      const RowRange part = parts[i];
      chunks[num_chunks++] = {
          &expert, shared, first + part.begin, static_cast<int>(part.end - part.begin)};
    }
  }
};

Plan make_plan(Arena& scratch, const Experts& op) {
  const int64_t rows = op.y.dim(0);
  const int64_t routed = rows * op.ids.dim(1);
  const auto experts = static_cast<int64_t>(op.experts.size());
  Plan plan{scratch.take<Use>(routed + rows), scratch.take<Chunk>(routed + rows)};
  auto* end = scratch.take<int64_t>(experts + 1);  // of each expert's uses
  std::fill_n(end, experts + 1, 0);
  for (int64_t i = 0; i < routed; ++i)
    ++end[op.ids.data[i] + 1];
  for (int64_t e = 0; e < experts; ++e)
    end[e + 1] += end[e];
  for (int64_t i = 0; i < routed; ++i) {
    plan.uses[end[op.ids.data[i]]++] = {
        static_cast<int32_t>(i / op.ids.dim(1)), op.weights.data[i]};
  }
  for (int64_t row = 0; row < rows; ++row)
    plan.uses[routed + row] = {static_cast<int32_t>(row), 1.0f};
  plan.num_uses = routed + rows;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t first = e == 0 ? 0 : end[e - 1];
    plan.add_chunks(op.experts[static_cast<std::size_t>(e)], false, first, end[e] - first);
  }
  plan.add_chunks(op.shared, true, routed, rows);
  return plan;
}

/// Prepared rows of one activation matrix.
struct PreparedRows {
  std::byte* data = nullptr;
  int64_t row_bytes = 0;

  std::byte* row(int64_t i) const { return data + i * row_bytes; }
};

class ExpertsRun {
 public:
  ExpertsRun(const ExpertKernels& kernels, Exec& exec, const Experts& op)
      : kernels_(kernels.linear),
        row_kernels_(kernels.rows),
        exec_(exec),
        op_(op),
        plan_(make_plan(exec.scratch, op)) {
    const int64_t inner = std::max(op.shared.w1.rows, op.experts[0].w1.rows);
    inner_blocks_ = inner / kScaleGroup;
    const int64_t bytes =
        std::max(path(op.shared.w2).row_bytes(inner), path(op.experts[0].w2).row_bytes(inner));
    u_ = {exec.scratch.take<std::byte>(plan_.num_uses * bytes), bytes};
    sums_ = exec.scratch.array<float>(op.y.dim(0), op.y.dim(1));
  }

  void run() {
    const Q8Path routed = path(op_.experts[0].w1);
    const Q8Path shared = path(op_.shared.w1);
    routed_x_ = prepare_x(routed);
    shared_x_ = shared.kernel.form == routed.kernel.form ? routed_x_ : prepare_x(shared);
    const int64_t up_count = plan_.num_chunks * inner_blocks_;
    parallel(up_count, [&](int64_t i) {
      gate_up(plan_.chunks[i / inner_blocks_], i % inner_blocks_);
    });
    parallel(ceil_div(op_.y.dim(1), kTileRows), [&](int64_t tile) { down(tile); });
  }

 private:
  template <class Work>
  void parallel(int64_t count, Work&& work) {
    const int64_t grain = grain_for(count, exec_.pool.num_threads());
    exec_.pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        work(i);
    });
  }

  Q8Path path(const Weight& w) const { return q8_path(kernels_, w.format, op_.y.dim(0)); }

  PreparedRows prepare_x(const Q8Path& x_path) {
    const int64_t bytes = x_path.row_bytes(op_.x.codes.dim(1));
    const PreparedRows rows{exec_.scratch.take<std::byte>(op_.y.dim(0) * bytes), bytes};
    prepare_rows(exec_, x_path, op_.x, {0, op_.y.dim(0)}, rows.data);
    return rows;
  }

  /// 32 inner columns of a gate or up product, rounded to bf16.
  void product(const Weight& w, int64_t block, const Chunk& chunk, bf16* y) const {
    const PreparedRows& rows = chunk.shared ? shared_x_ : routed_x_;
    const std::byte* x[kMaxRows];
    for (int i = 0; i < chunk.num_rows; ++i)
      x[i] = rows.row(plan_.uses[chunk.first + i].row);
    float out[kMaxRows * kTileRows];
    constexpr int64_t kTiles = kScaleGroup / kTileRows;
    for (int64_t t = 0; t < kTiles; ++t) {
      const std::byte* tile = tile_of(w, block * kTiles + t);
      path(w).kernel.run({tile, w.cols, x, chunk.num_rows, out});
      for (int i = 0; i < chunk.num_rows; ++i) {
        for (int n = 0; n < kTileRows; ++n)
          y[i * kScaleGroup + t * kTileRows + n] = to_bf16(out[i * kTileRows + n]);
      }
    }
  }

  /// u = swiglu(gate, up) of 32 inner columns, quantised and prepared for the down product.
  void gate_up(const Chunk& chunk, int64_t block) const {
    if (block >= chunk.expert->w1.rows / kScaleGroup) return;
    bf16 gate[kMaxRows * kScaleGroup], up[kMaxRows * kScaleGroup], u[kScaleGroup];
    product(chunk.expert->w1, block, chunk, gate);
    product(chunk.expert->w3, block, chunk, up);
    const Q8Path u_path = path(chunk.expert->w2);
    for (int i = 0; i < chunk.num_rows; ++i) {
      const Use& use = plan_.uses[chunk.first + i];
      row_kernels_.swiglu(
          {.u = &u[0].bits,
           .gate = &gate[i * kScaleGroup].bits,
           .up = &up[i * kScaleGroup].bits,
           .weight = chunk.shared ? nullptr : &use.weight,
           .limit = op_.swiglu_limit,
           .width = kScaleGroup}
      );
      uint8_t codes[kScaleGroup];
      uint8_t scale = 0;
      row_kernels_.quantize_q8(&u[0].bits, 1, codes, &scale);
      std::byte* out = u_.row(chunk.first + i) + block * u_path.row_bytes(kScaleGroup);
      u_path.prepare(codes, &scale, kScaleGroup, out);
    }
  }

  /// 16 output columns of all rows: every expert's product rounded to bf16 and added in order.
  void down(int64_t tile) const {
    const int64_t begin = tile * kTileRows;
    const int64_t end = std::min(op_.y.dim(1), begin + kTileRows);
    for (int64_t row = 0; row < op_.y.dim(0); ++row)
      std::fill(sums_.row(row) + begin, sums_.row(row) + end, 0.0f);
    for (int64_t c = 0; c < plan_.num_chunks; ++c) {
      const Chunk& chunk = plan_.chunks[c];
      const Weight& w = chunk.expert->w2;
      const std::byte* x[kMaxRows];
      for (int i = 0; i < chunk.num_rows; ++i)
        x[i] = u_.row(chunk.first + i);
      float out[kMaxRows * kTileRows];
      path(w).kernel.run({tile_of(w, tile), w.cols, x, chunk.num_rows, out});
      for (int i = 0; i < chunk.num_rows; ++i) {
        float* sum = sums_.row(plan_.uses[chunk.first + i].row);
        for (int64_t n = begin; n < end; ++n)
          sum[n] += round_bf16(out[i * kTileRows + n - begin]);
      }
    }
    for (int64_t row = 0; row < op_.y.dim(0); ++row) {
      for (int64_t n = begin; n < end; ++n)
        op_.y(row, n) = to_bf16(sums_(row, n));
    }
  }

  const Kernels& kernels_;
  const RowKernels& row_kernels_;
  Exec& exec_;
  const Experts& op_;
  Plan plan_;
  int64_t inner_blocks_ = 0;
  PreparedRows routed_x_, shared_x_;  // x in the forms of routed and shared experts
  PreparedRows u_;                    // one row for each use
  View<float, 2> sums_;               // [rows, hidden]
};

}  // namespace

void experts(const ExpertKernels& kernels, Exec& exec, const Experts& op) {
  if (op.y.dim(0) == 0) return;
  const Arena::Scope scope(exec.scratch);
  ExpertsRun(kernels, exec, op).run();
}

}  // namespace di::ops::cpu
