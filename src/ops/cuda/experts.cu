// The launches of the experts: the lists of each expert's rows (expert_lists.h), in the wide form
// their operands, one persistent kernel for all products, and the sum over each row's experts.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/expert_narrow.cuh"
#include "ops/cuda/expert_wide.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/tensor_map.h"

namespace di::ops::cuda {
namespace {

/// Parts of a row that are fetched together.
constexpr int kPartsAtOnce = 8;

/// Sums each row's parts in the order of slots, in fp32. Blocks are small for few rows, so that
/// they find room beside the kernel before. `positions` may be read while that still works: it let
/// this one start when they were complete.
__global__ void __launch_bounds__(256, 4)
    combine_experts(bf16* y, const uint16_t* parts, const int32_t* positions, int k, int hidden) {
  const int64_t row = blockIdx.y;
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kVector;
  const auto* all = reinterpret_cast<const bf16*>(parts) + channel;
  float sum[kVector] = {};
  for (int first = 0; first <= k; first += kPartsAtOnce) {
    int position[kPartsAtOnce];
    uint4 part[kPartsAtOnce];
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i)
      position[i] = first + i <= k ? positions[row * (k + 1) + first + i] : -1;
    if (first == 0) {
      wait_for_previous_kernels();
      let_next_kernel_start();
      if (channel >= hidden) return;
    }
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i)
      if (position[i] >= 0) part[i] = load_vector(all + int64_t{position[i]} * hidden);
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i) {
      if (position[i] < 0) continue;
      float x[kVector];
      unpack(part[i], x);
#pragma unroll
      for (int c = 0; c < kVector; ++c)
        sum[c] += x[c];
    }
  }
  store_vector(y + row * hidden + channel, pack(sum));
}

/// Checks one matrix of all experts and says where they lie.
ExpertMatrix matrix_of(
    const Experts& op, Weight ExpertWeights::*which, const char* name, int64_t rows, int64_t cols
) {
  const auto check_shape = [&](const Weight& w, WeightFormat format) {
    if (w.rows == rows && w.cols == cols && w.format == format && w.scales == nullptr) return;
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name + ": expected packed matrices of " + std::to_string(rows) +
            " x " + std::to_string(cols) + " in one format, found " + std::to_string(w.rows) +
            " x " + std::to_string(w.cols)
    );
  };
  const Weight& shared = op.shared.*which;
  check_shape(shared, op.shared.w1.format);
  ExpertMatrix matrix{nullptr, 0, reinterpret_cast<const uint8_t*>(shared.data)};
  if (op.experts.empty()) return matrix;
  const Weight& first = op.experts.front().*which;
  const Weight& last = op.experts.back().*which;
  check_shape(first, op.experts.front().w1.format);
  check_shape(last, op.experts.front().w1.format);
  matrix.routed = reinterpret_cast<const uint8_t*>(first.data);
  const int64_t steps = std::ssize(op.experts) - 1;
  if (steps == 0) return matrix;
  matrix.stride = (op.experts[1].*which).data - first.data;
  if (first.data + steps * matrix.stride != last.data) {
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name +
            ": expected the experts' matrices at a constant distance, found the last one elsewhere"
    );
  }
  return matrix;
}

bool is_fp8(const Weight& w) {
  if (w.format == WeightFormat::kFp8) return true;
  if (w.format == WeightFormat::kFp4) return false;
  throw Error(ErrorCode::kUnsupported, "experts: expected weights in FP4 or FP8, found others");
}

void launch_narrow(Exec& exec, const ExpertArguments& arguments) {
  constexpr int kBytes = sizeof(NarrowMemory);
  [[maybe_unused]] static const int allowed = allow_shared_memory(multiply_narrow, kBytes);
  const dim3 grid(static_cast<unsigned>(num_sms() * NarrowExperts::kCtas));
  launch_overlapped(
      "experts", multiply_narrow, grid, NarrowExperts::kThreads, kBytes, exec.stream, arguments
  );
}

template <class Shape>
void launch_wide(Exec& exec, const ExpertArguments& arguments, int rows, int64_t positions) {
  constexpr int kBytes = sizeof(WideMemory<Shape>);
  [[maybe_unused]] static const int allowed = allow_shared_memory(multiply_wide<Shape>, kBytes);
  // A tile's parts of phase 2 take the place of its rows, which only phase 1 needs.
  auto* x = reinterpret_cast<uint4*>(arguments.parts);
  const dim3 pieces(blocks_of(positions * arguments.hidden / 16, 256));
  launch_overlapped(
      "experts", expand_rows, pieces, 256, 0, exec.stream, arguments, rows, positions, x
  );
  RowMaps<Shape> maps;
  for (int i = 0; i < Shape::kWidths; ++i) {
    const auto map = [&](const void* data, int64_t cols) {
      return bf16_tile_map(data, positions, 1, cols, Shape::kWidth[i]);
    };
    maps.x[i] = map(x, arguments.hidden);
    maps.u[i] = map(arguments.u_expanded, arguments.inner);
  }
  const dim3 grid(static_cast<unsigned>(num_sms()));
  launch_overlapped(
      "experts", multiply_wide<Shape>, grid, Shape::kThreads, kBytes, exec.stream, arguments, maps
  );
}

/// Rows of an expert that a tile takes at most.
int max_tokens(ExpertTiles tiles) {
  switch (tiles) {
    case ExpertTiles::kNarrow: return NarrowExperts::kMaxTokens;
    case ExpertTiles::kWide128: return Wide128::kMaxTokens;
    case ExpertTiles::kWide256: return Wide256::kMaxTokens;
  }
  return 0;
}

/// The form for so many rows, by how many an expert has on average.
ExpertTiles tiles_for(int64_t rows, int64_t k, int64_t experts) {
  constexpr int64_t kNarrowRows = 24;
  constexpr int64_t kWide128Rows = 112;
  const int64_t mean = rows * k / std::max<int64_t>(1, experts);
  return mean <= kNarrowRows    ? ExpertTiles::kNarrow
         : mean <= kWide128Rows ? ExpertTiles::kWide128
                                : ExpertTiles::kWide256;
}

/// Takes all of an op's scratch for `rows` rows of `k` routed experts each.
void take_scratch(
    Arena& scratch, int64_t rows, int64_t k, ExpertTiles tiles, ExpertArguments& arguments
) {
  const int64_t positions = rows * (k + 1);
  arguments.lists = take_lists(scratch, rows, k, arguments.experts, max_tokens(tiles));
  arguments.shared_tiles = static_cast<int>((rows + max_tokens(tiles) - 1) / max_tokens(tiles));
  arguments.parts = scratch.take<uint16_t>(positions * arguments.hidden);
  if (tiles == ExpertTiles::kNarrow) {
    arguments.u_codes = scratch.take<uint8_t>(positions * arguments.inner);
    arguments.u_scales = scratch.take<uint8_t>(positions * arguments.inner / kScaleGroup);
  } else {
    arguments.u_expanded = scratch.take<uint8_t>(positions * arguments.inner * 2);
  }
}

}  // namespace

void experts_with(Exec& exec, const Experts& op, ExpertTiles tiles) {
  const int64_t rows = op.y.dim(0);
  const int64_t hidden = op.y.dim(1);
  const int64_t inner = op.shared.w1.rows;
  const int64_t k = op.ids.dim(1);
  need_multiple("experts: hidden width", hidden, 32);
  need_multiple("experts: inner width", inner, 32);
  ExpertArguments arguments{};
  arguments.gate = matrix_of(op, &ExpertWeights::w1, "w1", inner, hidden);
  arguments.up = matrix_of(op, &ExpertWeights::w3, "w3", inner, hidden);
  arguments.down = matrix_of(op, &ExpertWeights::w2, "w2", hidden, inner);
  arguments.shared_fp8 = is_fp8(op.shared.w1);
  arguments.routed_fp8 = !op.experts.empty() && is_fp8(op.experts.front().w1);
  if (rows == 0) return;

  const int64_t num_experts = std::ssize(op.experts);
  const int64_t positions = rows * (k + 1);
  if (positions * std::max(hidden, inner) > int64_t{0xffffffff}) {
    throw Error(
        ErrorCode::kUnsupported,
        "experts: expected at most 2^32 elements of all rows' experts, found " +
            std::to_string(positions * std::max(hidden, inner))
    );
  }
  arguments.experts = static_cast<int>(num_experts);
  arguments.hidden = static_cast<int>(hidden);
  arguments.inner = static_cast<int>(inner);
  arguments.k = static_cast<int>(k);
  const Arena::Scope scope(exec.scratch);
  take_scratch(exec.scratch, rows, k, tiles, arguments);
  list_experts(exec, op.ids, op.weights, num_experts, max_tokens(tiles), arguments.lists);
  arguments.x_codes = op.x.codes.data;
  arguments.x_scales = op.x.scales.data;
  arguments.limit = op.swiglu_limit;
  switch (tiles) {
    case ExpertTiles::kNarrow: launch_narrow(exec, arguments); break;
    case ExpertTiles::kWide128:
      launch_wide<Wide128>(exec, arguments, static_cast<int>(rows), positions);
      break;
    case ExpertTiles::kWide256:
      launch_wide<Wide256>(exec, arguments, static_cast<int>(rows), positions);
      break;
  }
  constexpr int64_t kFewRows = 64;
  const int threads = rows <= kFewRows ? 64 : 256;
  const dim3 grid(blocks_of(hidden, threads * kVector), static_cast<unsigned>(rows));
  launch_overlapped(
      "experts",
      combine_experts,
      grid,
      threads,
      0,
      exec.stream,
      op.y.data,
      static_cast<const uint16_t*>(arguments.parts),
      static_cast<const int32_t*>(arguments.lists.position),
      arguments.k,
      arguments.hidden
  );
}

void experts(Exec& exec, const Experts& op) {
  experts_with(exec, op, tiles_for(op.y.dim(0), op.ids.dim(1), std::ssize(op.experts)));
}

}  // namespace di::ops::cuda
