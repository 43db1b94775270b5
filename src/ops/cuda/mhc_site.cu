// A site of the hyper-connections; docs/kernels/cuda_rows.md has the picture.
//
// A CTA takes a tile of rows and a sixteenth of the channels. Few rows: the sixteen CTAs of a tile
// are a cluster and push their sums into each other's memory, so that one launch does everything.
// Many rows: sums and x pass through memory to a second launch, whose blocks are rows. Both add the
// same numbers in the same order.
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/mhc.h"
#include "ops/cuda/mhc_cluster.cuh"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/mhc_tile.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/tensor_map.h"

namespace di::ops::cuda {
namespace {

constexpr int kFewRows = 64;      ///< up to so many one launch does it
constexpr int kRowThreads = 192;  ///< of a row in the second launch

/// A block for a row: its first warp makes the mixes, the others norm.
__global__ void __launch_bounds__(kRowThreads, 8)
    row_kernel(const __grid_constant__ SiteArgs op, const double* sums) {
  __shared__ float m[kMixes];
  __shared__ float x_factor;
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const int64_t stride = int64_t{op.rows} * kScratchSums;
  const double* own = sums + row * kScratchSums;
  if (threadIdx.x < 32) {
    const float factor = finish_sums(op, own, stride, kScratchSums, m);
    if (op.a != nullptr) {
      if (threadIdx.x == 0) x_factor = factor;
      named_barrier_arrive(1, kRowThreads);
    }
    finish_comb(op.mix, m, row);
    finish_gates(op.mix, m, row);
    return;
  }
  if (op.a == nullptr) return;
  constexpr int kStride = kRowThreads - 32;
  constexpr int kKept = kMaxUnits * kGroups * kUnit / kVector / kStride;
  const int vectors = op.hidden / kVector;
  const int first = static_cast<int>(threadIdx.x) - 32;
  uint4 x[kKept];
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int v = first + i * kStride;
    if (v < vectors) x[i] = load_vector(op.x + row * op.hidden + v * kVector);
  }
  named_barrier(1, kRowThreads);
  const float factor = x_factor;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int v = first + i * kStride;
    if (v >= vectors) break;
    finish_vector(op, x[i], load_vector(op.norm + v * kVector), factor, row, v * kVector, true);
  }
}

/// Clusters for 8 or 16 rows each.
template <int kHalves>
void launch_clusters(Exec& exec, const SiteArgs& args) {
  using Unit = SiteUnit<kHalves>;
  const int units = args.hidden / kUnit / kGroups;
  const auto bytes_of = [](int count) {
    return static_cast<int>(
        sizeof(Pushed<Unit::kRows>) +
        static_cast<std::size_t>(count) * sizeof(typename Unit::Memory)
    );
  };
  static const int allowed = [&] {
    check(
        cudaFuncSetAttribute(
            cluster_kernel<kHalves>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1
        ),
        "cudaFuncSetAttribute(NonPortableClusterSizeAllowed)"
    );
    return allow_shared_memory(cluster_kernel<kHalves>, bytes_of(kMaxUnits));
  }();
  static_cast<void>(allowed);
  launch_clusters_overlapped(
      "mhc_site",
      cluster_kernel<kHalves>,
      dim3(kGroups, blocks_of(args.rows, Unit::kRows)),
      kGroups,
      (units + 1) * 32,
      bytes_of(units),
      exec.stream,
      args
  );
}

void launch_few(Exec& exec, const SiteArgs& args) {
  constexpr int kMostRowsByEight = 48;  // more clusters of sixteen may not fit at once
  args.rows <= kMostRowsByEight ? launch_clusters<1>(exec, args) : launch_clusters<2>(exec, args);
}

/// Tiles of `kRows` rows.
template <int kRows>
void launch_tiles(Exec& exec, const SiteArgs& args, double* sums) {
  using Shape = TileShape<kRows>;
  constexpr int kBytes = static_cast<int>(sizeof(TileMemory<Shape>));
  static const int allowed = allow_shared_memory(tile_kernel<Shape>, kBytes);
  static_cast<void>(allowed);
  launch_overlapped(
      "mhc_site",
      tile_kernel<Shape>,
      dim3(kGroups, blocks_of(args.rows, Shape::kRows)),
      Shape::kThreads,
      kBytes,
      exec.stream,
      args,
      bf16_tile_map(args.h, args.rows, kStreams, args.hidden, Shape::kRows, kUnit),
      sums
  );
}

void launch_many(Exec& exec, const SiteArgs& args) {
  const Arena::Scope scope(exec.scratch);
  auto* sums = exec.scratch.take<double>(int64_t{kGroups} * args.rows * kScratchSums);
  if (args.rows <= 128) {
    launch_tiles<32>(exec, args, sums);
  } else if (args.rows <= 512) {
    launch_tiles<64>(exec, args, sums);
  } else {
    launch_tiles<128>(exec, args, sums);
  }
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
      .mix = mix_args_of(op.mix),
      .h = op.mix.h.data,
      .fn = reinterpret_cast<const uint4*>(op.mix.fn.data),
      .a = collapses ? op.a.data : nullptr,
      .norm = op.norm.data,
      .x = op.x.data,
      .codes = op.codes.data,
      .scales = op.scales.data,
      .rows = static_cast<int>(op.mix.h.dim(0)),
      .hidden = static_cast<int>(op.mix.h.dim(2)),
      .inverse_hidden = 1.0 / static_cast<double>(op.mix.h.dim(2)),
      .norm_eps = op.mix.norm_eps};
  if (args.rows <= kFewRows) {
    launch_few(exec, args);
  } else {
    launch_many(exec, args);
  }
}

}  // namespace di::ops::cuda
