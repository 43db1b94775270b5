// A stable counting sort. Each block places 1024 pairs: the pairs of one expert before a given one
// are those of earlier blocks (counted by a first launch, when there are several blocks), of
// earlier warps (counted in shared memory) and of earlier lanes (found by __match_any_sync). One
// block alone, on which a decode step waits, has no more threads than there are experts or pairs.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/expert_lists.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/pipeline.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = static_cast<int>(kListedPairs);  // of a block at most; experts at most
constexpr int kWarps = kThreads / 32;

struct Arguments {
  const int32_t* ids;
  const float* weights;
  ExpertLists lists;
  int rows;
  int k;
  int experts;
  int tile_rows;
};

/// The expert of pair `i`, or -1.
__device__ int expert_of(const Arguments& op, int i) {
  if (i >= op.rows * op.k) return -1;
  const int id = op.ids[i];
  return id >= 0 && id < op.experts ? id : -1;
}

__global__ void __launch_bounds__(kThreads) count_pairs(Arguments op) {
  __shared__ int32_t count[kThreads];
  let_next_kernel_start();
  count[threadIdx.x] = 0;
  __syncthreads();
  const int expert = expert_of(op, blockIdx.x * kThreads + threadIdx.x);
  if (expert >= 0) atomicAdd(&count[expert], 1);
  __syncthreads();
  if (threadIdx.x < op.experts)
    op.lists.block_counts[blockIdx.x * op.experts + threadIdx.x] = count[threadIdx.x];
}

/// Σ of the values of all threads before this one, of two kinds of values. Every thread of the
/// block calls it, once.
__device__ int2 exclusive_sums(int2 value) {
  __shared__ int2 warp_sums[kWarps];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int2 sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int2 other = {__shfl_up_sync(~0u, sum.x, step), __shfl_up_sync(~0u, sum.y, step)};
    if (lane >= step) sum = {sum.x + other.x, sum.y + other.y};
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  const int2 before = lane < warp ? warp_sums[lane] : int2{0, 0};
  return {
      __reduce_add_sync(~0u, before.x) + sum.x - value.x,
      __reduce_add_sync(~0u, before.y) + sum.y - value.y};
}

/// Cuts `count` positions from `begin` into tiles of equal width, a multiple of 8.
__device__ int tiles_of(const Arguments& op, int count) {
  return (count + op.tile_rows - 1) / op.tile_rows;
}
__device__ void write_tiles(const Arguments& op, int expert, int begin, int count, int first) {
  const int tiles = tiles_of(op, count);
  if (tiles == 0) return;
  const int width = ((count + tiles - 1) / tiles + 7) / 8 * 8;
  for (int t = 0; t < tiles; ++t) {
    const int start = t * width;
    op.lists.tiles[first + t] = {expert, begin + start, min(width, count - start), tiles};
  }
}

/// Counts of the pairs that warps of this block have for each expert.
using WarpCounts = uint8_t[kWarps][kThreads];

/// How many pairs of this block come before the calling thread's and have its expert.
__device__ int rank_in_block(int expert, WarpCounts& warp_counts) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const uint32_t same = __match_any_sync(~0u, expert);
  const int rank = __popc(same & ((1u << lane) - 1));
  if (expert >= 0 && rank == 0) warp_counts[warp][expert] = static_cast<uint8_t>(__popc(same));
  __syncthreads();
  int before = 0;
  for (int w = 0; expert >= 0 && w < warp; ++w)
    before += warp_counts[w][expert];
  return before + rank;
}

__global__ void __launch_bounds__(kThreads) place_pairs(Arguments op) {
  __shared__ WarpCounts warp_counts;
  __shared__ int32_t begin[kThreads];
  const int thread = threadIdx.x;
  const int threads = blockDim.x;
  const int warps = min(kWarps, (op.rows * op.k + 31) / 32);  // that have pairs
  for (int i = thread; i < warps * static_cast<int>(sizeof(warp_counts[0]) / 4); i += threads)
    reinterpret_cast<uint32_t*>(&warp_counts[0][0])[i] = 0;
  join_kernel_chain();
  const int pair = blockIdx.x * threads + thread;
  const int expert = expert_of(op, pair);
  const float weight = pair < op.rows * op.k ? op.weights[pair] : 0.0f;
  for (int i = pair; i < kWorkQueues + op.lists.max_tiles; i += gridDim.x * threads)
    op.lists.counters[i] = 0;
  __syncthreads();
  const int rank = rank_in_block(expert, warp_counts);

  // Thread e speaks for expert e from here on.
  int count = 0;
  int earlier = 0;  // of them, in earlier blocks
  if (thread < op.experts) {
    if (gridDim.x == 1) {
      for (int w = 0; w * 32 < op.rows * op.k; ++w)
        count += warp_counts[w][thread];
    } else {
      for (int block = 0; block < gridDim.x; ++block) {
        if (block == blockIdx.x) earlier = count;
        count += op.lists.block_counts[block * op.experts + thread];
      }
    }
  }
  const int tiles = tiles_of(op, count);
  const auto [start, earlier_tiles] = exclusive_sums({count, tiles});
  begin[thread] = start + earlier;
  __syncthreads();
  if (pair < op.rows * op.k) {
    const int target = pair / op.k * (op.k + 1) + pair % op.k;
    const int position = expert >= 0 ? begin[expert] + rank : -1;
    op.lists.position[target] = position;
    if (position >= 0) {
      op.lists.target[position] = target;
      op.lists.weight[position] = weight;
    }
  }
  for (int row = pair; row < op.rows; row += gridDim.x * threads) {
    const int target = row * (op.k + 1) + op.k;
    const int position = op.rows * op.k + row;
    op.lists.position[target] = position;
    op.lists.target[position] = target;
    op.lists.weight[position] = 1.0f;
  }

  if (blockIdx.x != 0) return;
  const int first = tiles_of(op, op.rows) + earlier_tiles;  // behind the shared expert's
  write_tiles(op, thread, start, count, first);
  if (thread == threads - 1) *op.lists.num_tiles = first + tiles;
  if (thread == 0) write_tiles(op, op.experts, op.rows * op.k, op.rows, 0);
}

}  // namespace

void list_experts(
    Exec& exec,
    const View<const int32_t, 2>& ids,
    const View<const float, 2>& weights,
    int64_t experts,
    int64_t tile_rows,
    const ExpertLists& lists
) {
  const int64_t rows = ids.dim(0);
  const int64_t k = ids.dim(1);
  const int64_t pairs = rows * k;
  if (experts > kThreads || rows * (k + 1) > int64_t{1} << 30) {
    throw Error(
        ErrorCode::kUnsupported,
        "experts: expected at most 1024 experts and 2^30 pairs of a row and an expert, found " +
            std::to_string(experts) + " and " + std::to_string(rows * (k + 1))
    );
  }
  const auto blocks =
      static_cast<unsigned>(std::max<int64_t>(1, (pairs + kThreads - 1) / kThreads));
  const Arguments arguments{
      .ids = ids.data,
      .weights = weights.data,
      .lists = lists,
      .rows = static_cast<int>(rows),
      .k = static_cast<int>(k),
      .experts = static_cast<int>(experts),
      .tile_rows = static_cast<int>(tile_rows)};
  if (blocks > 1) {
    count_pairs<<<blocks, kThreads, 0, exec.stream>>>(arguments);
    check_launch("count_pairs");
  }
  const int64_t needed = (std::max({pairs, experts, int64_t{1}}) + 31) / 32 * 32;
  const int threads = blocks > 1 ? kThreads : static_cast<int>(needed);
  launch_overlapped("experts", place_pairs, dim3(blocks), threads, 0, exec.stream, arguments);
}

}  // namespace di::ops::cuda
