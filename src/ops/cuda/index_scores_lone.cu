// Scores of many rows alone, each of a sequence of its own: what all rows see is dealt in tiles of
// keys, by the rows' own lengths, so that no multiprocessor waits for a longer row. A CTA takes a
// stretch of the tiles, which may begin in one row and end in another: keys of the next row are on
// their way while the query changes.
#include <algorithm>

#include "ops/cuda/index_score_tile.cuh"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kWarpgroups = 4;
constexpr int kThreads = kWarpgroups * 128;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kManyKeys = 512;  // of a multiprocessor: larger tiles pay

/// The rows of a launch, and how many tiles each has; a CTA's threads share it.
struct LoneRows {
  static constexpr int kMost = 256;

  const int32_t* tables[kMost];  // of blocks
  int visible[kMost];
  int starts[kMost + 1];  // tiles of the rows before
  int sums[kMost / 32];

  /// All threads call it; a tile has `tile_keys` keys.
  __device__ void fill(const IndexCall& call, int tile_keys) {
    static_assert(kMost <= kThreads);
    const auto row = static_cast<int>(threadIdx.x);
    const bool exists = row < call.scores.rows;
    int tiles = 0;
    if (exists) {
      const int64_t own = call.scores.first_row + row;
      // A row alone is mostly that of the sequence of its number: its table is read at once.
      const int likely = static_cast<int>(min(own, int64_t{call.num_sequences} - 1));
      const int32_t* table = call.sequences[likely].block_table;
      const int sequence = call.sequence_of[own];
      visible[row] = call.visible(own);
      tables[row] = sequence == likely ? table : call.sequences[sequence].block_table;
      tiles = (visible[row] + tile_keys - 1) / tile_keys;
    }
    int up_to_own = tiles;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, up_to_own, distance);
      if (row % 32 >= distance) up_to_own += other;
    }
    if (row < kMost && row % 32 == 31) sums[row / 32] = up_to_own;
    __syncthreads();
    if (exists) {
      for (int warp = 0; warp < row / 32; ++warp)
        up_to_own += sums[warp];
      starts[row + 1] = up_to_own;
    }
    if (row == 0) starts[0] = 0;
    __syncthreads();
  }

  /// The row of a tile, of `rows`.
  __device__ int row_of(int tile, int rows) const {
    int first = 0;
    for (int last = rows - 1; first < last;) {
      const int middle = (first + last) / 2;
      if (tile < starts[middle + 1]) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return first;
  }
};

/// What a CTA's threads share, as bytes behind a multiple of 1024: a swizzled query and its
/// weights, the warps' keys' scales as floats, their rings, the rows.
template <int kHalves>
struct LoneMemory {
  static constexpr int kWeights = IndexTile::kQueryBytes;
  static constexpr int kScales = kWeights + IndexTile::kWeightBytes;
  static constexpr int kRings = kScales + kWarps * KeyTile<kHalves>::kWarpKeys * kScaleBytes;
  static constexpr int kRows = kRings + kWarps * kStages * KeyTile<kHalves>::kStageBytes;
  static constexpr int kBytes = 1024 + kRows + static_cast<int>(sizeof(LoneRows));
};

/// A warp's keys of every fourth tile of [first, end), through a ring of its own as in KeyStream.
template <int kHalves>
class LoneStream {
 public:
  using Tile = KeyTile<kHalves>;

  __device__ LoneStream(
      const IndexCall& call, const LoneRows& rows, int first, int end, uint32_t ring
  )
      : call_(call), rows_(rows), tile_(first), end_(end) {
    const uint32_t lane = threadIdx.x % 32;
    to_ = ring + lane / 4 * IndexTile::kCodeBytes + (lane + lane / 8) % 4 * 16;
    scales_to_ = ring + Tile::kWarpKeys * IndexTile::kCodeBytes + lane * 16;
  }

  /// Starts the copies of the first tiles, into all stages but the last.
  __device__ void copy_first() {
    for (int stage = 0; stage < kStages - 1; ++stage)
      copy_next(stage * Tile::kStageBytes);
  }

  /// Starts the copies of the next tile into the stage at byte `stage` of the ring; a batch even
  /// when there is none.
  __device__ void copy_next(uint32_t stage) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if (ahead_ == 0) look_up();
    const std::byte* codes =
        reinterpret_cast<const std::byte*>(__shfl_sync(0xffffffffu, codes_, ahead_)) + lane * 16;
    const std::byte* scales = codes + __shfl_sync(0xffffffffu, to_scales_, ahead_);
    const bool exists = tile_ < end_;
#pragma unroll
    for (int chunk = 0; chunk < 2 * kHalves; ++chunk)
      copy_16(to_ + stage + chunk * kChunkBytes, codes + chunk * kChunkBytes, exists);
    copy_16(scales_to_ + stage, scales, exists && lane < 4 * kHalves);
    commit_copies();
    tile_ += kWarpgroups;
    ahead_ = (ahead_ + 1) % 32;
  }

 private:
  /// Lane l finds the keys of the tile l ahead; the row's first entries stand for what is not
  /// there.
  __device__ void look_up() {
    const int tile = tile_ + static_cast<int>(threadIdx.x % 32) * kWarpgroups;
    if (tile >= end_) return;
    const int row = rows_.row_of(tile, static_cast<int>(call_.scores.rows));
    const int warp = static_cast<int>(threadIdx.x / 32 % 4);
    const int own = (tile - rows_.starts[row]) * Tile::kKeys + warp * Tile::kWarpKeys;
    const int entry = own < rows_.visible[row] ? own : 0;
    const int block = rows_.tables[row][entry >> call_.block_shift];
    const uint32_t in_block = static_cast<uint32_t>(entry) & call_.block_mask;
    codes_ = reinterpret_cast<uint64_t>(call_.keys.base + block * call_.keys.block_stride) +
             in_block * IndexTile::kCodeBytes;
    to_scales_ = call_.scales_at - in_block * (IndexTile::kCodeBytes - IndexTile::kGroups);
  }

  const IndexCall& call_;
  const LoneRows& rows_;
  int tile_;  ///< the next
  int end_;
  int ahead_ = 0;
  uint32_t to_;  ///< of this lane, in the first stage
  uint32_t scales_to_;
  uint64_t codes_ = 0;      ///< that this lane has looked up
  uint32_t to_scales_ = 0;  ///< from there to their scales
};

/// The scores of the tile at `stage` of a warp's ring for the CTA's query: of lane / 4 and so on as
/// in own_key, for the lanes that own one.
template <int kHalves>
__device__ float score_halves(
    uint32_t stage,
    uint32_t scales_at,
    uint32_t own_scale_at,
    uint32_t query,
    uint32_t weights_at,
    uint32_t four
) {
  using Tile = KeyTile<kHalves>;
  const int in_quad = static_cast<int>(threadIdx.x % 4);
  const bool wide =
      spread_scales(stage + Tile::kWarpKeys * IndexTile::kCodeBytes, scales_at, Tile::kWarpKeys);
  const float scale = wide ? 1.0f : __uint_as_float(load_shared_4(own_scale_at));
  KeyFragment fragment;
  float own = 0;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    fragment.load(stage, scales_at, 16 * half, four);
    const float2 score = score_tile<true>(fragment, wide, query, load_shared_16(weights_at));
    if (in_quad == 2 * half) own = score.x;
    if (in_quad == 2 * half + 1) own = score.y;
  }
  return own * scale;
}

/// CTA b takes the b-th of gridDim.x equal stretches of all rows' tiles, its warpgroups every
/// fourth tile each.
template <int kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    score_lone_rows(const __grid_constant__ IndexCall call) {
  using Tile = KeyTile<kHalves>;
  using Memory = LoneMemory<kHalves>;
  constexpr uint32_t kLastStage = (kStages - 1) * Tile::kStageBytes;
  extern __shared__ uint8_t raw[];
  uint8_t* const memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const uint32_t base = shared_address(memory);
  auto& all = *reinterpret_cast<LoneRows*>(memory + Memory::kRows);
  const auto thread = static_cast<int>(threadIdx.x);
  wait_for_previous_kernels();
  all.fill(call, Tile::kKeys);
  const auto rows = static_cast<int>(call.scores.rows);
  const auto stretch = [&](uint32_t cta) {
    const auto total = static_cast<uint32_t>(all.starts[rows]);
    return static_cast<int>(static_cast<uint64_t>(cta) * total / gridDim.x);
  };
  const int begin = stretch(blockIdx.x);
  const int end = stretch(blockIdx.x + 1);
  if (begin == end) return;
  const int first_row = all.row_of(begin, rows);
  QueryWord word(call, call.scores.first_row + first_row, thread);
  HeadWeight weight(call, call.scores.first_row + first_row, thread);
  const int warp = thread / 32;
  const uint32_t ring = base + Memory::kRings + warp * kStages * Tile::kStageBytes;
  int tile = begin + warp / 4;
  LoneStream<kHalves> keys(call, all, tile, end, ring);
  keys.copy_first();

  int lane = thread % 32;
  asm volatile("" : "+r"(lane));  // kept, not read again
  // Two scores a lane make a lane's quad: which of them the lane writes.
  const int own_key = warp % 4 * Tile::kWarpKeys + lane / 4 + lane % 4 * kChunk % Tile::kWarpKeys;
  const uint32_t scales_at = base + Memory::kScales + warp * Tile::kWarpKeys * kScaleBytes;
  const uint32_t own_scale_at = scales_at + own_key % Tile::kWarpKeys * kScaleBytes;
  const auto query = static_cast<uint32_t>(b_descriptor(base, 0));
  uint32_t weights_at = base + Memory::kWeights + lane % 4 * 16;
  asm volatile("" : "+r"(weights_at));
  const bool owns = lane % 4 < 2 * kHalves;
  const uint32_t four = unknown_four(scales_at);
  uint32_t stage = 0;
  for (int row = first_row;; ++row) {
    word.write(memory, thread);
    if (thread < IndexTile::kHeads) weight.write(memory + Memory::kWeights, thread);
    fence_async_proxy();
    __syncthreads();
    const int place = (tile - all.starts[row]) * Tile::kKeys + own_key;
    int left = all.visible[row] - place;
    auto at = static_cast<uint32_t>(row) * static_cast<uint32_t>(call.scores.stride) +
              static_cast<uint32_t>(place);  // 32 bits hold a workspace
    const int row_end = min(end, all.starts[row + 1]);
    constexpr int kStep = kWarpgroups * Tile::kKeys;
    for (; tile < row_end; tile += kWarpgroups, left -= kStep, at += kStep) {
      wait_copies<kStages - 2>();
      __syncwarp();
      keys.copy_next(stage == 0 ? kLastStage : stage - Tile::kStageBytes);
      const float score =
          score_halves<kHalves>(ring + stage, scales_at, own_scale_at, query, weights_at, four);
      write_key(call.scores, at, score, left > 0, owns, owns && lane < 4);
      stage = stage == kLastStage ? 0 : stage + Tile::kStageBytes;
    }
    if (row_end == end) break;
    word = QueryWord(call, call.scores.first_row + row + 1, thread);
    weight = HeadWeight(call, call.scores.first_row + row + 1, thread);
    __syncthreads();
  }
  wait_copies<0>();
}

template <int kHalves>
void launch(Exec& exec, IndexCall call, int64_t places) {
  auto* kernel = &score_lone_rows<kHalves>;
  constexpr int kShared = LoneMemory<kHalves>::kBytes;
  static const int allowed = allow_shared_memory(kernel, kShared);
  static_cast<void>(allowed);
  IndexScores& scores = call.scores;
  for (int64_t left = scores.rows; left > 0; left -= scores.rows) {
    scores.rows = std::min<int64_t>(left, LoneRows::kMost);
    const int64_t tiles = scores.rows * blocks_of(places, KeyTile<kHalves>::kKeys);
    const dim3 grid(static_cast<unsigned int>(std::min<int64_t>(tiles, num_sms())));
    launch_overlapped("index_select: scores", kernel, grid, kThreads, kShared, exec.stream, call);
    scores.keys += scores.rows * scores.stride;
    scores.bests += scores.rows * scores.stride / kVectorKeys;
    scores.first_row += scores.rows;
  }
}

}  // namespace

void score_rows_alone(Exec& exec, const IndexCall& call, int64_t places) {
  if (call.scores.rows * places < kManyKeys * num_sms()) return launch<1>(exec, call, places);
  launch<2>(exec, call, places);
}

}  // namespace di::ops::cuda
