// Keys stand on the M side of the tensor cores, 64 a warpgroup, unpacked from FP4 to E4M3
// registers; the 32 heads of a row are the N side, in shared memory. A group of 32 channels is one
// exact FP8 product; the four groups join in fp32 with the key's scales, in order. Relu, bf16, head
// weights and the sum over heads follow in registers: that sum is one more product of the tensor
// cores, by ones.
#include <algorithm>
#include <bit>

#include "ops/cuda/index_key_stream.cuh"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kWarpgroups = 4;
constexpr int kThreads = kWarpgroups * 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxRows = 16;        // of a CTA
constexpr int64_t kManyKeys = 512;  // of a multiprocessor: larger tiles pay

/// Shared memory of a CTA for `rows` rows.
template <int kHalves>
constexpr int shared_bytes(int rows) {
  return 1024 + rows * (IndexTile::kQueryBytes + IndexTile::kWeightBytes + 8) +
         kWarps * kStages * KeyTile<kHalves>::kStageBytes;
}

struct SharedMemory {
  uint8_t* queries;  // [rows] swizzled tiles of IndexTile::kHeads rows of 128 bytes
  uint8_t* weights;  // [rows][4 lanes][4 blocks of 8 heads] pairs of bf16
  int* visible;      // [rows]
  int* sequence;     // [rows]
  uint8_t* stages;   // [kWarps][kStages]: keys' codes in swizzled pieces, then their scales

  __device__ SharedMemory(uint8_t* raw, int rows, int stage_bytes) {
    queries = raw + (1024 - shared_address(raw) % 1024) % 1024;
    weights = queries + rows * IndexTile::kQueryBytes;
    stages = weights + rows * IndexTile::kWeightBytes;
    visible = reinterpret_cast<int*>(stages + kWarps * kStages * stage_bytes);
    sequence = visible + rows;
  }
};

/// What all query tiles have in their descriptors.
constexpr uint64_t kDescriptor = uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;

/// max(x, 0) of both, rounded to bf16; NaN stays NaN.
__device__ uint32_t round_positive_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Scores of a tile for the query whose descriptor begins with `query`: x of key lane / 4, y of the
/// one eight behind. The same in the four lanes of a key.
__device__ float2 score_tile(KeyFragment& keys, uint32_t query, const uint4& weights) {
  float sums[IndexTile::kGroups][16];
#pragma unroll
  for (int group = 0; group < IndexTile::kGroups; ++group)
    hold_registers(keys.codes[group]);
  wgmma_fence();
#pragma unroll
  for (int group = 0; group < IndexTile::kGroups; ++group)
    wgmma_e4m3_n32(sums[group], keys.codes[group], kDescriptor | (query + 2 * group));
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int group = 0; group < IndexTile::kGroups; ++group)
    hold_registers(sums[group]);
  const uint32_t weight[4] = {weights.x, weights.y, weights.z, weights.w};
  uint32_t products[4][2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // pairs of heads: block i / 2, key half i % 2
    float dot[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      dot[j] = __fmul_rn(sums[0][2 * i + j], keys.scales[0][i % 2]);
#pragma unroll
      for (int group = 1; group < IndexTile::kGroups; ++group)
        dot[j] = fmaf(sums[group][2 * i + j], keys.scales[group][i % 2], dot[j]);
    }
    products[i / 2][i % 2] = multiply_bf16x2(round_positive_pair(dot[0], dot[1]), weight[i / 2]);
  }
  float total[4] = {0, 0, 0, 0};
  add_row_sums(total, {products[0][0], products[0][1], products[1][0], products[1][1]});
  add_row_sums(total, {products[2][0], products[2][1], products[3][0], products[3][1]});
  return {total[0], total[2]};
}

/// The rows of a CTA.
struct CtaRows {
  int64_t first;        ///< of the op's rows
  int64_t first_score;  ///< of the rows of scores
  int count;
};

/// The run of rows from row `row` of the op on, the furthest of which sees `visible` entries.
template <bool kCandidates>
__device__ KeyRun find_run(const IndexCall& call, int64_t row, int sequence, int visible) {
  return {
      .table = call.sequences[sequence].block_table,
      .candidates = kCandidates ? call.candidates + row * call.width : nullptr,
      .places = call.places(visible)};
}

/// Brings what the CTA's rows are into shared memory.
__device__ void load_rows(const IndexCall& call, const SharedMemory& shared, const CtaRows& rows) {
  load_queries<kThreads>(call, shared.queries, shared.weights, rows.first, rows.count);
  for (int row = static_cast<int>(threadIdx.x); row < rows.count; row += kThreads) {
    shared.visible[row] = call.visible(rows.first + row);
    shared.sequence[row] = call.sequence_of[rows.first + row];
  }
  fence_async_proxy();
  __syncthreads();
}

/// A warpgroup's part of a run, rows [begin, end) of the CTA: tiles `tile`, tile + step and on,
/// whose copies have begun.
template <bool kCandidates, int kHalves>
__device__ void score_run(
    const IndexCall& call,
    const SharedMemory& shared,
    const CtaRows& rows,
    int begin,
    int end,
    const KeyRun& run,
    KeyStream<kCandidates, kHalves>& keys,
    uint32_t ring,
    int tile,
    int step
) {
  using Tile = KeyTile<kHalves>;
  constexpr uint32_t kLastStage = (kStages - 1) * Tile::kStageBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int own_key = lane / 4 + lane % 4 * kChunk;  // whose score the lane writes
  auto queries = static_cast<uint32_t>(b_descriptor(shared_address(shared.queries), 0));
  uint32_t weights_at = shared_address(shared.weights) + lane % 4 * 16;
  uint32_t visible_at = shared_address(shared.visible);
  asm("" : "+r"(queries), "+r"(weights_at), "+r"(visible_at));  // kept, not computed again
  uint32_t stage = 0;
  uint32_t free_stage = kLastStage;
  for (; tile * Tile::kKeys < run.places; tile += step) {
    const int place = tile * Tile::kKeys + warp * Tile::kWarpKeys + own_key % Tile::kWarpKeys;
    const int entry = entry_at<kCandidates>(call, run, place);
    wait_copies<kStages - 2>();
    __syncwarp();
    keys.copy_next(free_stage);
    KeyFragment fragment;
    if constexpr (kHalves == 1) fragment.load(ring + stage, Tile::kWarpKeys, 0);
    free_stage = stage;
    uint16_t* to = call.scores.keys + (rows.first_score + begin) * call.scores.stride + place;
    for (int row = begin; row < end; ++row, to += call.scores.stride) {
      const uint32_t query = queries + static_cast<uint32_t>(row) * (IndexTile::kQueryBytes / 16);
      const uint4 weights = load_shared_16(weights_at + row * IndexTile::kWeightBytes);
      float own = 0;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        if constexpr (kHalves > 1) fragment.load(ring + stage, Tile::kWarpKeys, 16 * half);
        const float2 score = score_tile(fragment, query, weights);
        if (lane % 4 == 2 * half) own = score.x;
        if (lane % 4 == 2 * half + 1) own = score.y;
      }
      const auto visible = static_cast<int>(load_shared_4(visible_at + row * 4));
      const bool seen = entry >= 0 && entry < visible;
      const uint16_t key = order_key(own);
      if (lane % 4 < 2 * kHalves) *to = seen ? key : uint16_t{0};
    }
    stage = stage == kLastStage ? 0 : stage + Tile::kStageBytes;
  }
  wait_copies<0>();
  __syncwarp();
}

/// A CTA takes `tile_rows` rows and every gridDim.x-th group of four tiles of each run of rows of
/// one sequence among them; a warpgroup takes a tile, and unpacks its keys once for all rows of the
/// run. Of one row alone, keys are on their way before the query is prepared.
template <bool kCandidates, bool kOneRow, int kHalves>
__global__ void __launch_bounds__(kThreads, 1) score_tiles(IndexCall call, int tile_rows) {
  extern __shared__ uint8_t raw[];
  wait_for_previous_kernels();
  if constexpr (kOneRow) tile_rows = 1;
  constexpr int kStageBytes = KeyTile<kHalves>::kStageBytes;
  const SharedMemory shared(raw, tile_rows, kStageBytes);
  CtaRows rows{.first = 0, .first_score = int64_t{blockIdx.y} * tile_rows, .count = 1};
  rows.first = call.scores.first_row + rows.first_score;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t ring = shared_address(shared.stages) + warp * kStages * kStageBytes;
  const int tile = static_cast<int>(blockIdx.x) * kWarpgroups + warp / 4;
  const int step = static_cast<int>(gridDim.x) * kWarpgroups;
  if constexpr (kOneRow) {
    const KeyRun run = find_run<kCandidates>(
        call, rows.first, call.sequence_of[rows.first], call.visible(rows.first)
    );
    KeyStream<kCandidates, kHalves> keys(call, run, tile, step, ring);
    keys.copy_first();
    load_rows(call, shared, rows);
    score_run(call, shared, rows, 0, 1, run, keys, ring, tile, step);
  } else {
    rows.count = static_cast<int>(min(int64_t{tile_rows}, call.scores.rows - rows.first_score));
    load_rows(call, shared, rows);
    for (int begin = 0, end = 0; begin < rows.count; begin = end) {
      int visible = 0;
      for (end = begin; end < rows.count && shared.sequence[end] == shared.sequence[begin]; ++end)
        visible = max(visible, shared.visible[end]);
      const KeyRun run =
          find_run<kCandidates>(call, rows.first + begin, shared.sequence[begin], visible);
      KeyStream<kCandidates, kHalves> keys(call, run, tile, step, ring);
      keys.copy_first();
      score_run(call, shared, rows, begin, end, run, keys, ring, tile, step);
    }
  }
}

/// Whether candidates of this size are whole chunks, and a power of two of them.
bool is_chunked(int64_t block_size) {
  return block_size >= kChunk && std::has_single_bit(static_cast<uint64_t>(block_size));
}

/// Whether the tensor-core kernel can take the shapes of `op`.
bool is_regular(const IndexSelect& op) {
  const int64_t per_block = op.keys.entries_per_block;
  const auto base = reinterpret_cast<uintptr_t>(op.keys.base);
  return op.q_codes.dim(1) <= IndexTile::kHeads && op.q_codes.dim(2) == IndexTile::kCodeBytes &&
         per_block >= KeyTile<1>::kKeys && op.keys.block_stride < int64_t{1} << 32 &&
         (per_block & (per_block - 1)) == 0 && base % 16 == 0 && op.keys.block_stride % 16 == 0 &&
         (op.candidates_in.empty() || is_chunked(op.candidate_block_size));
}

/// Rows that a CTA takes: as many as a sequence has on average, rounded up: then a tile ends with
/// its sequence where all have the most that one may have.
int rows_of_tile(const IndexSelect& op) {
  if (!op.candidates_in.empty()) return 1;
  const int64_t sequences = std::max<int64_t>(1, std::ssize(op.rows.sequences));
  const int64_t mean = (op.rows.count() + sequences - 1) / sequences;
  const int64_t rows = std::min(mean, op.rows.longest_run());
  return static_cast<int>(std::clamp<int64_t>(rows, 1, kMaxRows));
}

/// CTAs that share the keys of `row_tiles` tiles of rows, `groups` groups of four tiles of keys:
/// what fills the multiprocessors most evenly, a CTA's beginning included.
int64_t splits_of(int64_t row_tiles, int64_t groups) {
  constexpr double kBeginning = 2;  // in groups
  int64_t best = 1;
  double best_time = 0;
  for (int64_t splits = 1; splits <= std::min<int64_t>(groups, num_sms()); ++splits) {
    const int64_t waves = (row_tiles * splits + num_sms() - 1) / num_sms();
    const int64_t of_cta = (groups + splits - 1) / splits;
    const double time = static_cast<double>(waves) * (static_cast<double>(of_cta) + kBeginning);
    if (splits > 1 && time >= best_time) continue;
    best = splits;
    best_time = time;
  }
  return best;
}

template <bool kCandidates, bool kOneRow, int kHalves>
void launch_scores(Exec& exec, const IndexCall& call, int tile_rows, int64_t places) {
  auto* kernel = &score_tiles<kCandidates, kOneRow, kHalves>;
  static const int allowed =
      allow_shared_memory(kernel, shared_bytes<kHalves>(kOneRow ? 1 : kMaxRows));
  static_cast<void>(allowed);
  const unsigned int row_tiles = blocks_of(call.scores.rows, tile_rows);
  const int64_t groups = blocks_of(places, KeyTile<kHalves>::kKeys * kWarpgroups);
  const dim3 grid(static_cast<unsigned int>(splits_of(row_tiles, groups)), row_tiles);
  const int shared = shared_bytes<kHalves>(tile_rows);
  launch_overlapped(
      "index_select: scores", kernel, grid, kThreads, shared, exec.stream, call, tile_rows
  );
}

void score_on_tensor_cores(Exec& exec, const IndexCall& call, int tile_rows, int64_t places) {
  if (call.candidates != nullptr) {
    launch_scores<true, true, 1>(exec, call, 1, places);
  } else if (tile_rows > 1) {
    launch_scores<false, false, 1>(exec, call, tile_rows, places);
  } else if (call.scores.rows * places < kManyKeys * num_sms()) {
    launch_scores<false, true, 1>(exec, call, 1, places);
  } else {
    launch_scores<false, true, 2>(exec, call, 1, places);
  }
}

}  // namespace

int64_t max_places(const IndexSelect& op) {
  if (op.candidates_in.empty()) return op.rows.max_length / op.ratio;
  return op.candidates_in.dim(1) * op.candidate_block_size;
}

IndexCall index_call(const IndexSelect& op, const IndexScores& scores) {
  return {
      .scores = scores,
      .q_codes = op.q_codes.data,
      .q_scales = op.q_scales.data,
      .head_weights = op.head_weights.data,
      .candidates = op.candidates_in.empty() ? nullptr : op.candidates_in.data,
      .width = op.candidates_in.empty() ? 0 : static_cast<int>(op.candidates_in.dim(1)),
      .block_size = static_cast<int>(std::max<int64_t>(1, op.candidate_block_size)),
      .candidate_shift = std::countr_zero(static_cast<uint64_t>(op.candidate_block_size)),
      .heads = static_cast<int>(op.q_codes.dim(1)),
      .dim = static_cast<int>(op.q_codes.dim(2) * 2),
      .keys = op.keys,
      .block_shift = std::countr_zero(static_cast<uint64_t>(op.keys.entries_per_block)),
      .ratio = static_cast<int>(op.ratio),
      .sequences = op.rows.sequences.data(),
      .sequence_of = op.rows.sequence_of.data,
      .positions = op.rows.positions.data};
}

void score_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  const int64_t places = max_places(op);
  if (scores.rows == 0 || places == 0) return;
  const IndexCall call = index_call(op, scores);
  if (is_regular(op)) return score_on_tensor_cores(exec, call, rows_of_tile(op), places);
  score_entries_plainly(exec, call, places);
}

}  // namespace di::ops::cuda
