// A site of the hyper-connections; docs/kernels/cuda_rows.md has the picture.
//
// A CTA takes a tile of rows and a sixteenth of the channels. Few rows: the sixteen CTAs of a tile
// are a cluster and push their sums into each other's memory, so that one launch does everything.
// Many rows: sums and x pass through memory to a second launch, whose blocks are rows. Both add the
// same numbers in the same order.
#include <cooperative_groups.h>

#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/mhc.h"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/mhc_tile.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kFewRows = 64;  ///< up to so many one launch does it
constexpr int kUnitThreads = kMaxUnits * 32;
constexpr int kRowThreads = 192;  ///< of a row in the second launch

/// What the CTAs of a cluster push to each other.
struct Pushed {
  double sums[kGroups][kSums];           ///< of the row that this CTA finishes
  double x_squares[kTileRows][kGroups];  ///< of all rows
  float mixes[2][kMixes];                ///< of that row, for both warps that finish it
};

/// A warp for each unit, and one more that makes comb of the row with the CTA's number.
__global__ void __launch_bounds__(kUnitThreads + 32, 1)
    cluster_kernel(const __grid_constant__ SiteArgs op) {
  extern __shared__ __align__(128) char bytes[];
  Pushed& pushed = *reinterpret_cast<Pushed*>(bytes);
  auto* memory = reinterpret_cast<UnitMemory*>(bytes + sizeof(Pushed));
  const cg::cluster_group cluster = cg::this_cluster();
  let_next_kernel_start();
  cluster.barrier_arrive();
  const int units = static_cast<int>(blockDim.x) / 32 - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(cluster.block_rank());
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows;
  const bool has_unit = warp < units;
  SiteUnit unit(op, memory[warp], group * units + warp);
  uint4 norm{};
  if (has_unit) {
    unit.bring_fn();
    if (op.a != nullptr) norm = load_vector(op.norm + unit.channel());
    wait_for_previous_kernels();
    unit.take(first_row);
    unit.add_up();
  }
  __syncthreads();
  cluster.barrier_wait();  // all CTAs of the cluster run by now
  const int rows = min(kTileRows, op.rows - first_row);
  const auto sums_of = [&](int i) -> const UnitSums& { return memory[i].sums; };
  for (int i = static_cast<int>(threadIdx.x); i < rows * (kSums + 1); i += blockDim.x) {
    const int row = i / (kSums + 1);
    const int which = i % (kSums + 1);
    const double sum = sum_of_units(units, row, which, sums_of);
    if (which < kSums) {
      *cluster.map_shared_rank(&pushed.sums[group][which], static_cast<unsigned int>(row)) = sum;
      continue;
    }
#pragma unroll
    for (unsigned int rank = 0; rank < kGroups; ++rank)
      *cluster.map_shared_rank(&pushed.x_squares[row][group], rank) = sum;
  }
  cluster.sync();
  const int64_t own_row = group < rows ? first_row + group : -1;
  if (!has_unit) {
    if (own_row < 0) return;
    finish_mixes(op, pushed.sums[0], kSums, pushed.mixes[0]);
    finish_comb(op.mix, pushed.mixes[0], own_row);
    return;
  }
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    if (op.a == nullptr || half * 8 >= rows) break;
    const int row = min(unit.row(half), rows - 1);
    const float factor =
        inverse_rms_of_sum(sum_of_groups(pushed.x_squares[row], 1), op.hidden, op.norm_eps);
    finish_vector(
        op, unit.x(half), norm, factor, first_row + row, unit.channel(), unit.row(half) < rows
    );
  }
  if (warp == 0 && own_row >= 0) {
    finish_mixes(op, pushed.sums[0], kSums, pushed.mixes[1]);
    finish_gates(op.mix, pushed.mixes[1], own_row);
  }
}

/// Where the first launch leaves the sums: [groups, rows, kSums + 1], the squares of x last.
constexpr int kScratchSums = kSums + 1;

__global__ void __launch_bounds__(kUnitThreads, 2)
    tile_kernel(const __grid_constant__ SiteArgs op, double* sums) {
  extern __shared__ __align__(128) char bytes[];
  auto* memory = reinterpret_cast<TileMemory*>(bytes);
  join_kernel_chain();
  const int units = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = static_cast<int>(blockIdx.x);
  const int unit = group * units + warp;
  const int first_row = static_cast<int>(blockIdx.y) * kManyRows;
  const int rows = min(kManyRows, op.rows - first_row);
  run_tile(op, memory[warp], unit, first_row);
  for (int i = static_cast<int>(threadIdx.x) % 32; op.a != nullptr && i < rows * 4; i += 32) {
    store_vector(
        op.x + int64_t{first_row + i / 4} * op.hidden + unit * kUnit + i % 4 * kVector,
        memory[warp].x[i / 4][i % 4]
    );
  }
  __syncthreads();
  double* to = sums + (int64_t{group} * op.rows + first_row) * kScratchSums;
  const auto sums_of = [&](int i) -> const auto& {
    return memory[i].sums;
  };
  for (int i = static_cast<int>(threadIdx.x); i < rows * kScratchSums; i += blockDim.x)
    to[i] = sum_of_units(units, i / kScratchSums, i % kScratchSums, sums_of);
}

/// A block for a row: its first warp makes the mixes, the others norm.
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const __grid_constant__ SiteArgs op, const double* sums) {
  __shared__ float m[kMixes];
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const int64_t stride = int64_t{op.rows} * kScratchSums;
  const double* own = sums + row * kScratchSums;
  if (threadIdx.x < 32) {
    finish_mixes(op, own, stride, m);
    finish_comb(op.mix, m, row);
    finish_gates(op.mix, m, row);
    return;
  }
  if (op.a == nullptr) return;
  const float factor =
      inverse_rms_of_sum(sum_of_groups(own + kSums, stride), op.hidden, op.norm_eps);
  const int vectors = op.hidden / kVector;
  for (int v = static_cast<int>(threadIdx.x) - 32; v < vectors; v += kRowThreads - 32) {
    const uint4 x = load_vector(op.x + row * op.hidden + v * kVector);
    finish_vector(op, x, load_vector(op.norm + v * kVector), factor, row, v * kVector, true);
  }
}

void launch_cluster(Exec& exec, const SiteArgs& args) {
  const int units = args.hidden / kUnit / kGroups;
  const auto bytes_of = [](int count) {
    return static_cast<int>(sizeof(Pushed) + static_cast<std::size_t>(count) * sizeof(UnitMemory));
  };
  static const int allowed = [&] {
    check(
        cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute(NonPortableClusterSizeAllowed)"
    );
    return allow_shared_memory(cluster_kernel, bytes_of(kMaxUnits));
  }();
  static_cast<void>(allowed);
  launch_clusters_overlapped(
      "mhc_site",
      cluster_kernel,
      dim3(kGroups, blocks_of(args.rows, kTileRows)),
      kGroups,
      (units + 1) * 32,
      bytes_of(units),
      exec.stream,
      args
  );
}

void launch_tiles(Exec& exec, const SiteArgs& args) {
  const Arena::Scope scope(exec.scratch);
  auto* sums = exec.scratch.take<double>(int64_t{kGroups} * args.rows * kScratchSums);
  const int units = args.hidden / kUnit / kGroups;
  const auto bytes_of = [](int count) { return count * static_cast<int>(sizeof(TileMemory)); };
  static const int allowed = allow_shared_memory(tile_kernel, bytes_of(kMaxUnits));
  static_cast<void>(allowed);
  const dim3 grid(kGroups, blocks_of(args.rows, kManyRows));
  launch_overlapped(
      "mhc_site", tile_kernel, grid, units * 32, bytes_of(units), exec.stream, args, sums
  );
  launch_overlapped(
      "mhc_site",
      row_kernel,
      static_cast<unsigned int>(args.rows),
      kRowThreads,
      0,
      exec.stream,
      args,
      static_cast<const double*>(sums)
  );
}

}  // namespace

void run_site_kernel(Exec& exec, const MhcSite& op) {
  const bool collapses = !op.x.empty();
  const SiteArgs args{
      .mix =
          {.pre = op.mix.pre.data,
           .post = op.mix.post.data,
           .comb = op.mix.comb.data,
           .mixes = op.mix.mixes.data,
           .scale = op.mix.scale.data,
           .base = op.mix.base.data,
           .sinkhorn_iters = op.mix.sinkhorn_iters,
           .hc_eps = op.mix.hc_eps},
      .h = op.mix.h.data,
      .fn = reinterpret_cast<const uint4*>(op.mix.fn.data),
      .a = collapses ? op.a.data : nullptr,
      .norm = op.norm.data,
      .x = op.x.data,
      .codes = op.codes.data,
      .scales = op.scales.data,
      .rows = static_cast<int>(op.mix.h.dim(0)),
      .hidden = static_cast<int>(op.mix.h.dim(2)),
      .norm_eps = op.mix.norm_eps};
  if (args.rows <= kFewRows) {
    launch_cluster(exec, args);
  } else {
    launch_tiles(exec, args);
  }
}

}  // namespace di::ops::cuda
