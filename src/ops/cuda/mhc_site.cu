// A site of the hyper-connections; docs/kernels/cuda_rows.md has the picture.
//
// A CTA takes a tile of rows and a sixteenth of the channels. Few rows: the sixteen CTAs of a tile
// are a cluster and push their sums into each other's memory, so that one launch does everything.
// Many rows: sums and x pass through memory to a second launch, whose blocks are rows. Both add the
// same numbers in the same order.
#include <cooperative_groups.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/mhc_unit.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kFewRows = 64;        ///< up to so many one launch does it
constexpr int kRowsOfCluster = 16;  ///< each CTA finishes the mixes of one
constexpr int kUnitThreads = kMaxUnits * 32;
constexpr int kRowThreads = 192;  ///< of a row in the second launch
using FewMemory = UnitMemory<1>;
using ManyMemory = UnitMemory<2>;

/// What the CTAs of a cluster push to each other.
struct Pushed {
  double sums[kGroups][kSums];                ///< of the row that this CTA finishes
  double x_squares[kRowsOfCluster][kGroups];  ///< of all rows
  float factors[kRowsOfCluster];
  float mixes[2][kMixes];  ///< of that row, for each warp that finishes it
};

__global__ void __launch_bounds__(kUnitThreads)
    cluster_kernel(const __grid_constant__ SiteArgs op) {
  extern __shared__ __align__(128) char bytes[];
  using Memory = FewMemory;
  Pushed& pushed = *reinterpret_cast<Pushed*>(bytes);
  char* memory = bytes + sizeof(Pushed);
  const cg::cluster_group cluster = cg::this_cluster();
  const int units = blockDim.x / 32;
  const int warp = threadIdx.x / 32;
  const int group = static_cast<int>(cluster.block_rank());
  const int first_row = static_cast<int>(blockIdx.y) * kRowsOfCluster;
  cluster.barrier_arrive();
  run_unit<1>(op, memory + warp * Memory::kBytes, first_row, (group * units + warp) * kUnit);
  __syncthreads();
  cluster.barrier_wait();  // all CTAs of the cluster run by now
  const int rows = min(kRowsOfCluster, op.rows - first_row);
  for (int i = threadIdx.x; i < rows * kSums; i += blockDim.x) {
    const int row = i / kSums;
    const int which = i % kSums;
    *cluster.map_shared_rank(&pushed.sums[group][which], static_cast<unsigned int>(row)) =
        group_sum<Memory>(memory, row, which);
  }
  for (int i = threadIdx.x; i < rows * kGroups; i += blockDim.x) {
    const int row = i / kGroups;
    *cluster.map_shared_rank(
        &pushed.x_squares[row][group], static_cast<unsigned int>(i % kGroups)
    ) = group_x_sum<Memory>(memory, row);
  }
  cluster.sync();
  if (warp < 2) {
    const int row = first_row + group;
    finish_row(op, pushed.sums[0], kSums, pushed.mixes[warp], row < op.rows ? row : -1);
  }
  if (warp == 0 || op.a == nullptr) return;
  const int thread = static_cast<int>(threadIdx.x) - 32;
  const int threads = static_cast<int>(blockDim.x) - 32;
  const int from_last = threads - 1 - thread;
  if (from_last < kRowsOfCluster) {
    pushed.factors[from_last] =
        inverse_rms_of_sum(sum_of_groups(pushed.x_squares[from_last], 1), op.hidden, op.norm_eps);
  }
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  constexpr int kVectors = kUnit / kVector;  // of a unit
  const int pieces = rows * units * kVectors;
#pragma unroll 4
  for (int i = thread; i < (pieces + 31) / 32 * 32; i += threads) {
    const int piece = i < pieces ? i : i % 4;
    const int row = piece / kVectors % rows;
    const int unit = piece / kVectors / rows;
    const char* x = Memory::x(memory + unit * Memory::kBytes, row, piece % kVectors);
    const int channel = (group * units + unit) * kUnit + piece % kVectors * kVector;
    finish_vector(
        op,
        *reinterpret_cast<const uint4*>(x),
        pushed.factors[row],
        first_row + row,
        channel,
        i < pieces
    );
  }
}

/// Where the first launch leaves the sums: [groups, rows, kSums + 1], the squares of x last.
constexpr int kScratchSums = kSums + 1;

__global__ void __launch_bounds__(kUnitThreads, 2)
    tile_kernel(const __grid_constant__ SiteArgs op, double* sums) {
  extern __shared__ __align__(128) char memory[];
  using Memory = ManyMemory;
  const int units = blockDim.x / 32;
  const int warp = threadIdx.x / 32;
  const int group = static_cast<int>(blockIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * Memory::kRows;
  const int first_channel = (group * units + warp) * kUnit;
  char* unit = memory + warp * Memory::kBytes;
  run_unit<2>(op, unit, first_row, first_channel);
  const int rows = min(Memory::kRows, op.rows - first_row);
  if (op.a != nullptr) {
    __syncwarp();
    for (int i = threadIdx.x % 32; i < rows * (kUnit / kVector); i += 32) {
      const int row = i / (kUnit / kVector);
      const int vector = i % (kUnit / kVector);
      store_vector(
          op.x + int64_t{first_row + row} * op.hidden + first_channel + vector * kVector,
          *reinterpret_cast<const uint4*>(Memory::x(unit, row, vector))
      );
    }
  }
  __syncthreads();
  double* own = sums + (int64_t{group} * op.rows + first_row) * kScratchSums;
  for (int i = threadIdx.x; i < rows * kScratchSums; i += blockDim.x) {
    const int row = i / kScratchSums;
    const int which = i % kScratchSums;
    own[i] =
        which < kSums ? group_sum<Memory>(memory, row, which) : group_x_sum<Memory>(memory, row);
  }
}

/// A block for a row: its first warp makes the mixes, the others norm.
__global__ void __launch_bounds__(kRowThreads)
    row_kernel(const __grid_constant__ SiteArgs op, const double* sums) {
  __shared__ float m[2][kMixes];
  const int64_t row = blockIdx.x;
  const int64_t stride = int64_t{op.rows} * kScratchSums;
  const double* own = sums + row * kScratchSums;
  if (threadIdx.x < 64) finish_row(op, own, stride, m[threadIdx.x / 32], row);
  if (threadIdx.x < 32) return;
  if (op.a == nullptr) return;
  const float factor =
      inverse_rms_of_sum(sum_of_groups(own + kSums, stride), op.hidden, op.norm_eps);
  const int vectors = op.hidden / kVector;
  for (int v = static_cast<int>(threadIdx.x) - 32; v < vectors; v += kRowThreads - 32) {
    const uint4 x = load_vector(op.x + row * op.hidden + v * kVector);
    finish_vector(op, x, factor, row, v * kVector, true);
  }
}

void launch_cluster(Exec& exec, const SiteArgs& args) {
  const int units = args.hidden / kUnit / kGroups;
  const auto bytes_of = [](int count) {
    return static_cast<int>(sizeof(Pushed)) + count * FewMemory::kBytes;
  };
  static const int allowed = [&] {
    check(
        cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute(NonPortableClusterSizeAllowed)"
    );
    return allow_shared_memory(cluster_kernel, bytes_of(kMaxUnits));
  }();
  static_cast<void>(allowed);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kGroups, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kGroups, blocks_of(args.rows, kRowsOfCluster));
  config.blockDim = dim3(static_cast<unsigned int>(units * 32));
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes_of(units));
  config.stream = exec.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, cluster_kernel, args), "mhc_site");
}

void launch_tiles(Exec& exec, const SiteArgs& args) {
  using Memory = ManyMemory;
  const Arena::Scope scope(exec.scratch);
  auto* sums = exec.scratch.take<double>(int64_t{kGroups} * args.rows * kScratchSums);
  const int units = args.hidden / kUnit / kGroups;
  static const int allowed = allow_shared_memory(tile_kernel, kMaxUnits * Memory::kBytes);
  static_cast<void>(allowed);
  const dim3 grid(kGroups, blocks_of(args.rows, Memory::kRows));
  tile_kernel<<<grid, units * 32, units * Memory::kBytes, exec.stream>>>(args, sums);
  check_launch("mhc_site: tiles");
  row_kernel<<<static_cast<unsigned int>(args.rows), kRowThreads, 0, exec.stream>>>(args, sums);
  check_launch("mhc_site: rows");
}

}  // namespace

bool has_site_kernel(int64_t hidden) {
  return hidden % (kUnit * kGroups) == 0 && hidden / (kUnit * kGroups) <= kMaxUnits &&
         hidden / (kUnit * kGroups) >= 2;
}

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
      .fn = reinterpret_cast<const float*>(op.mix.fn.data),
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
