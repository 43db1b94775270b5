// Rows are sorted by expert as for the fast kernels (expert_lists.h), and everything between the
// router and the sum is in the order of these lists, a part for each pair of a row and an expert.
#include <algorithm>

#include "ops/cuda/canonical_experts.h"
#include "ops/cuda/canonical_product.cuh"
#include "ops/cuda/expert_combine.h"
#include "ops/cuda/expert_lists.h"
#include "ops/cuda/expert_matrix.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/moe.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda::canonical {
namespace {

/// Rows that are computed together: what bounds the scratch of a long step.
constexpr int64_t kChunkRows = 1024;

/// One matrix of every expert of a layer.
struct ExpertMatrices {
  Matrix first;    ///< of expert 0
  int64_t stride;  ///< bytes from one expert's to the next
  Matrix shared;
  int experts;

  __device__ Matrix of(int expert) const {
    if (expert == experts) return shared;
    Matrix w = first;
    w.data += expert * stride;
    w.scales += expert * stride;
    return w;
  }
};

/// Block (x, y): tile x of the outputs for tile y of the lists. Part p becomes the product of row
/// target[p] / slots, or of row p without `target`.
template <class Shape>
__global__ void __launch_bounds__(kThreads) multiply_lists(
    Q8View x,
    ExpertMatrices matrices,
    bf16* parts,
    const TokenTile* tiles,
    const int32_t* num_tiles,
    const int32_t* target,
    int slots
) {
  __shared__ TileMemory<Shape> memory;
  if (static_cast<int>(blockIdx.y) >= *num_tiles) return;
  const TokenTile tile = tiles[blockIdx.y];
  const Matrix w = matrices.of(tile.expert);
  const int first = static_cast<int>(blockIdx.x) * Shape::kOutputs;
  const auto multiply = [&](const auto& product) {
    multiply_tile<Shape>(
        product,
        w,
        first,
        min(first + Shape::kOutputs, w.rows),
        tile.count,
        memory,
        [&](int i) {
          const int position = tile.begin + i;
          return int64_t{target == nullptr ? position : target[position] / slots};
        },
        [&](int i, int n, float sum) { parts[int64_t{tile.begin + i} * w.rows + n] = to_bf16(sum); }
    );
  };
  if (w.format == WeightFormat::kFp4) {
    multiply(Q8Product<WeightFormat::kFp4>{x.codes.data, x.scales.data, w.cols});
  } else {
    multiply(Q8Product<WeightFormat::kFp8>{x.codes.data, x.scales.data, w.cols});
  }
}

/// The experts of a layer with one form of tiles, over chunks of rows.
template <class Shape>
class Layer {
 public:
  Layer(Exec& exec, const Experts& op)
      : exec_(exec),
        op_(op),
        hidden_(op.y.dim(1)),
        inner_(op.shared.w1.rows),
        k_(op.ids.dim(1)),
        gate_(matrices(&ExpertWeights::w1, "w1", inner_, hidden_)),
        up_(matrices(&ExpertWeights::w3, "w3", inner_, hidden_)),
        down_(matrices(&ExpertWeights::w2, "w2", hidden_, inner_)) {}

  /// Rows [first, first + count).
  void run(int64_t first, int64_t count) const {
    const Arena::Scope scope(exec_.scratch);
    const int64_t experts = std::ssize(op_.experts);
    const ExpertLists lists = take_lists(exec_.scratch, count, k_, experts, Shape::kRows);
    list_experts(
        exec_,
        View<const int32_t, 2>(op_.ids.row(first), count, k_),
        View<const float, 2>(op_.weights.row(first), count, k_),
        experts,
        Shape::kRows,
        lists
    );
    const int64_t positions = count * (k_ + 1);
    const auto gate = exec_.scratch.array<bf16>(positions, inner_);
    const auto up = exec_.scratch.array<bf16>(positions, inner_);
    const auto codes = exec_.scratch.array<uint8_t>(positions, inner_);
    const auto scales = exec_.scratch.array<uint8_t>(positions, inner_ / kScaleGroup);
    const auto parts = exec_.scratch.array<bf16>(positions, hidden_);
    const Q8View x{
        View<const uint8_t, 2>(op_.x.codes.row(first), count, hidden_),
        View<const uint8_t, 2>(op_.x.scales.row(first), count, hidden_ / kScaleGroup)};
    multiply(x, gate_, gate.data, lists, lists.target);
    multiply(x, up_, up.data, lists, lists.target);
    // The shared expert's weight is 1, which changes nothing.
    swiglu(
        exec_,
        {.u = gate,
         .gate = gate,
         .up = up,
         .weights = View<const float, 1>(lists.weight, positions),
         .limit = op_.swiglu_limit}
    );
    quantize_fp8(exec_, {.codes = codes, .scales = scales, .x = gate});
    multiply({codes, scales}, down_, parts.data, lists, nullptr);
    combine_experts(
        exec_,
        View<bf16, 2>(op_.y.row(first), count, hidden_),
        {.parts = parts.data, .positions = lists.position, .k = k_}
    );
  }

 private:
  ExpertMatrices matrices(
      Weight ExpertWeights::*which, const char* name, int64_t rows, int64_t cols
  ) const {
    const ExpertMatrix where = expert_matrix(op_, which, name, rows, cols);
    const Weight& shared = op_.shared.*which;
    const Weight& first = op_.experts.empty() ? shared : op_.experts.front().*which;
    return {
        .first = matrix_of(first),
        .stride = where.stride,
        .shared = matrix_of(shared),
        .experts = static_cast<int>(op_.experts.size())};
  }

  void multiply(
      const Q8View& x,
      const ExpertMatrices& w,
      bf16* parts,
      const ExpertLists& lists,
      const int32_t* target
  ) const {
    const dim3 grid(
        blocks_of(w.shared.rows, Shape::kOutputs), static_cast<unsigned>(lists.max_tiles)
    );
    multiply_lists<Shape><<<grid, kThreads, 0, exec_.stream>>>(
        x, w, parts, lists.tiles, lists.num_tiles, target, static_cast<int>(k_ + 1)
    );
    check_launch("experts");
  }

  Exec& exec_;
  const Experts& op_;
  int64_t hidden_;
  int64_t inner_;
  int64_t k_;
  ExpertMatrices gate_, up_, down_;
};

template <class Shape>
void run(Exec& exec, const Experts& op) {
  const Layer<Shape> layer(exec, op);
  for (int64_t first = 0; first < op.y.dim(0); first += kChunkRows)
    layer.run(first, std::min(kChunkRows, op.y.dim(0) - first));
}

}  // namespace

void experts(Exec& exec, const Experts& op) {
  need_multiple("experts: hidden width", op.y.dim(1), kScaleGroup);
  need_multiple("experts: inner width", op.shared.w1.rows, kScaleGroup);
  // From so many rows of an expert on average, tiles of many pay.
  constexpr int64_t kManyRows = 12;
  const int64_t pairs = op.y.dim(0) * op.ids.dim(1);
  const int64_t experts = std::max<int64_t>(1, std::ssize(op.experts));
  if (pairs / experts >= kManyRows) {
    run<ManyRows>(exec, op);
  } else {
    run<FewRows>(exec, op);
  }
}

}  // namespace di::ops::cuda::canonical
