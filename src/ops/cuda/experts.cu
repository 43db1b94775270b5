// The launches of the experts: the lists of each expert's rows (expert_lists.h), in the wide form
// their operands, one persistent kernel for all products, and the sum over each row's experts.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/expert_combine.h"
#include "ops/cuda/expert_matrix.h"
#include "ops/cuda/expert_narrow.cuh"
#include "ops/cuda/expert_wide.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/tensor_map.h"

namespace di::ops::cuda {
namespace {

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
  const dim3 grid(static_cast<unsigned>(num_sms() * Shape::kCtas));
  launch_overlapped(
      "experts", multiply_wide<Shape>, grid, Shape::kThreads, kBytes, exec.stream, arguments, maps
  );
}

/// Rows of an expert that a tile takes at most.
int max_tokens(ExpertTiles tiles) {
  switch (tiles) {
    case ExpertTiles::kNarrow: return NarrowExperts::kMaxTokens;
    case ExpertTiles::kWide32: return Wide32::kMaxTokens;
    case ExpertTiles::kWide64: return Wide64::kMaxTokens;
    case ExpertTiles::kWide128: return Wide128::kMaxTokens;
    case ExpertTiles::kWide256: return Wide256::kMaxTokens;
  }
  return 0;
}

/// The form for so many rows, by how many an expert has on average. Few rows in all make too few
/// units of 256 rows for the multiprocessors to share evenly.
ExpertTiles tiles_for(int64_t rows, int64_t k, int64_t experts) {
  constexpr int64_t kNarrowRows = 6;
  constexpr int64_t kWide32Rows = 24;
  constexpr int64_t kWide64Rows = 48;
  constexpr int64_t kWide128Rows = 112;
  constexpr int64_t kFewPositions = 3000;
  const int64_t mean = rows * k / std::max<int64_t>(1, experts);
  if (mean <= kNarrowRows) return ExpertTiles::kNarrow;
  if (mean <= kWide32Rows) return ExpertTiles::kWide32;
  if (mean <= kWide64Rows) return ExpertTiles::kWide64;
  const bool few = rows * (k + 1) <= kFewPositions;
  return mean <= kWide128Rows || few ? ExpertTiles::kWide128 : ExpertTiles::kWide256;
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
  arguments.gate = expert_matrix(op, &ExpertWeights::w1, "w1", inner, hidden);
  arguments.up = expert_matrix(op, &ExpertWeights::w3, "w3", inner, hidden);
  arguments.down = expert_matrix(op, &ExpertWeights::w2, "w2", hidden, inner);
  arguments.shared_fp8 = op.shared.w1.format == WeightFormat::kFp8;
  arguments.routed_fp8 = !op.experts.empty() && op.experts.front().w1.format == WeightFormat::kFp8;
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
  const auto launch = [&](auto* launch_form) {
    launch_form(exec, arguments, static_cast<int>(rows), positions);
  };
  switch (tiles) {
    case ExpertTiles::kNarrow: launch_narrow(exec, arguments); break;
    case ExpertTiles::kWide32: launch(launch_wide<Wide32>); break;
    case ExpertTiles::kWide64: launch(launch_wide<Wide64>); break;
    case ExpertTiles::kWide128: launch(launch_wide<Wide128>); break;
    case ExpertTiles::kWide256: launch(launch_wide<Wide256>); break;
  }
  combine_experts(
      exec,
      op.y,
      {.parts = reinterpret_cast<const bf16*>(arguments.parts),
       .positions = arguments.lists.position,
       .k = k}
  );
}

void experts(Exec& exec, const Experts& op) {
  experts_with(exec, op, tiles_for(op.y.dim(0), op.ids.dim(1), std::ssize(op.experts)));
}

}  // namespace di::ops::cuda
