// Keys stand on the M side of the tensor cores, 64 a warpgroup, unpacked from FP4 to E4M3
// registers; the 32 heads of a row are the N side, in shared memory. A CTA takes rows and a share
// of the keys that they see; what neither depends on the other is read at once.
#include <algorithm>
#include <bit>

#include "ops/cuda/index_score_tile.cuh"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"

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
         kWarps *
             (kStages * KeyTile<kHalves>::kStageBytes + KeyTile<kHalves>::kWarpKeys * kScaleBytes);
}

struct SharedMemory {
  uint8_t* queries;  // [rows] swizzled tiles of IndexTile::kHeads rows of 128 bytes
  uint8_t* weights;  // [rows][4 lanes][4 blocks of 8 heads] pairs of bf16
  int* visible;      // [rows]
  int* sequence;     // [rows]
  uint8_t* stages;   // [kWarps][kStages]: keys' codes in swizzled pieces, then their scales
  uint8_t* scales;   // [kWarps][keys of a warp]: as floats

  __device__ SharedMemory(uint8_t* raw, int rows, int warp_keys, int stage_bytes) {
    queries = raw + (1024 - shared_address(raw) % 1024) % 1024;
    weights = queries + rows * IndexTile::kQueryBytes;
    stages = weights + rows * IndexTile::kWeightBytes;
    scales = stages + kWarps * kStages * stage_bytes;
    visible = reinterpret_cast<int*>(scales + kWarps * warp_keys * kScaleBytes);
    sequence = visible + rows;
  }
};

/// The rows of a CTA.
struct CtaRows {
  int64_t first;        ///< of the op's rows
  int64_t first_score;  ///< of the rows of scores
  int count;
};

/// The run of rows from row `row` of the op on, of a sequence with this table of blocks; the
/// furthest sees `visible` entries.
template <bool kCandidates>
__device__ KeyRun find_run(const IndexCall& call, int64_t row, const int32_t* table, int visible) {
  return {
      .table = table,
      .candidates = kCandidates ? call.candidates + row * call.width : nullptr,
      .places = call.places(visible)};
}

/// Brings what the CTA's rows are into shared memory.
__device__ void load_rows(const IndexCall& call, const SharedMemory& shared, const CtaRows& rows) {
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < rows.count * QueryWord::kOfRow; i += kThreads) {
    const int row = i / QueryWord::kOfRow;
    const int word = i % QueryWord::kOfRow;
    QueryWord(call, rows.first + row, word)
        .write(shared.queries + row * IndexTile::kQueryBytes, word);
  }
  for (int i = thread; i < rows.count * IndexTile::kHeads; i += kThreads) {
    const int row = i / IndexTile::kHeads;
    const int head = i % IndexTile::kHeads;
    HeadWeight(call, rows.first + row, head)
        .write(shared.weights + row * IndexTile::kWeightBytes, head);
  }
  for (int row = thread; row < rows.count; row += kThreads) {
    shared.visible[row] = call.visible(rows.first + row);
    shared.sequence[row] = call.sequence_of[rows.first + row];
  }
  fence_async_proxy();
  __syncthreads();
}

/// A warpgroup's part of a run, rows [begin, end) of the CTA: tiles `tile`, tile + step and on,
/// whose copies have begun.
template <bool kCandidates, bool kOneRow, int kHalves>
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
  constexpr int kRowsAtOnce = kOneRow ? 1 : 2;
  static_assert(kRowsAtOnce * kHalves <= 2);
  constexpr uint32_t kLastStage = (kStages - 1) * Tile::kStageBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  int lane = static_cast<int>(threadIdx.x) % 32;
  asm("" : "+r"(lane));  // kept, not read again
  // Two scores a lane and a row, or two rows, make a lane's quad: which of them the lane writes.
  const int own_row = kOneRow ? 0 : lane % 4 / 2;
  const int own_key = warp * Tile::kWarpKeys + lane / 4 + lane % 4 * kChunk % Tile::kWarpKeys;
  const auto queries = static_cast<uint32_t>(b_descriptor(shared_address(shared.queries), 0));
  uint32_t weights_at = shared_address(shared.weights) + lane % 4 * 16;
  uint32_t visible_at = shared_address(shared.visible) + own_row * 4;
  const uint32_t scales_at =
      shared_address(shared.scales) + threadIdx.x / 32 * Tile::kWarpKeys * kScaleBytes;
  const uint32_t own_scale_at = scales_at + own_key % Tile::kWarpKeys * kScaleBytes;
  const auto stride = static_cast<uint32_t>(call.scores.stride);  // 32 bits hold a workspace
  uint32_t first = static_cast<uint32_t>(rows.first_score + begin + own_row) * stride;
  asm("" : "+r"(weights_at), "+r"(visible_at), "+r"(first));
  uint32_t stage = 0;
  for (; tile * Tile::kKeys < run.places; tile += step) {
    const int place = tile * Tile::kKeys + own_key;
    const int entry = entry_at<kCandidates>(call, run, place);
    wait_copies<kStages - 2>();
    __syncwarp();
    keys.copy_next(stage == 0 ? kLastStage : stage - Tile::kStageBytes);
    const uint32_t codes_at = ring + stage;
    const bool wide = spread_scales(
        codes_at + Tile::kWarpKeys * IndexTile::kCodeBytes, scales_at, Tile::kWarpKeys
    );
    const float scale = wide ? 1.0f : __uint_as_float(load_shared_4(own_scale_at));
    KeyFragment fragment;
    if constexpr (kHalves == 1) fragment.load(codes_at, scales_at, 0);
    uint32_t at = first + static_cast<uint32_t>(place);
    for (int row = begin; row < end; row += kRowsAtOnce, at += kRowsAtOnce * stride) {
      float own = 0;
#pragma unroll
      for (int i = 0; i < kRowsAtOnce * kHalves; ++i) {
        const int scored = row + i / kHalves;
        if (i > 0 && kHalves == 1 && scored >= end) break;
        if constexpr (kHalves > 1) fragment.load(codes_at, scales_at, 16 * i);
        uint32_t query = queries + static_cast<uint32_t>(scored) * (IndexTile::kQueryBytes / 16);
        if constexpr (!kOneRow)
          asm volatile("" : "+r"(query));  // all of a descriptor's parts are made of this
        const uint4 weights = load_shared_16(weights_at + scored * IndexTile::kWeightBytes);
        const float2 score = score_tile<kOneRow>(fragment, wide, query, weights);
        if (lane % 4 == 2 * i) own = score.x;
        if (lane % 4 == 2 * i + 1) own = score.y;
      }
      int visible = run.places;
      if constexpr (kCandidates || !kOneRow) {
        visible = static_cast<int>(load_shared_4(visible_at + row * 4));
      }
      const bool owns = kOneRow ? lane % 4 < 2 * kHalves : row + own_row < end;
      const bool seen = (!kCandidates || entry >= 0) && entry < visible;
      write_key(call.scores, at, own * scale, seen, owns, owns && lane < 4);
    }
    stage = stage == kLastStage ? 0 : stage + Tile::kStageBytes;
  }
  wait_copies<0>();
  __syncwarp();
}

/// A CTA's part of one row: every gridDim.x-th group of four tiles. All that does not depend on
/// something else is read first; the keys are on their way before the query is prepared.
template <bool kCandidates, int kHalves>
__device__ void score_row(
    const IndexCall& call, const SharedMemory& shared, const CtaRows& rows, uint32_t ring, int tile
) {
  static_assert(kThreads == QueryWord::kOfRow);
  const auto thread = static_cast<int>(threadIdx.x);
  const QueryWord word(call, rows.first, thread);
  const HeadWeight weight(call, rows.first, thread);
  // A row alone is mostly that of the sequence of its number.
  const int likely = static_cast<int>(min(rows.first, int64_t{call.num_sequences} - 1));
  const int32_t* table = call.sequences[likely].block_table;
  const int sequence = call.sequence_of[rows.first];
  const int visible = call.visible(rows.first);
  if (sequence != likely) table = call.sequences[sequence].block_table;
  const KeyRun run = find_run<kCandidates>(call, rows.first, table, visible);
  const int step = static_cast<int>(gridDim.x) * kWarpgroups;
  KeyStream<kCandidates, kHalves> keys(call, run, tile, step, ring);
  keys.copy_first();
  word.write(shared.queries, thread);
  if (thread < IndexTile::kHeads) weight.write(shared.weights, thread);
  if (thread == 0) shared.visible[0] = visible;
  fence_async_proxy();
  __syncthreads();
  score_run<kCandidates, true>(call, shared, rows, 0, 1, run, keys, ring, tile, step);
}

/// A CTA takes `tile_rows` rows and every gridDim.x-th group of four tiles of each run of rows of
/// one sequence among them; a warpgroup takes a tile, and unpacks its keys once for all rows of the
/// run.
template <bool kCandidates, bool kOneRow, int kHalves>
__global__ void __launch_bounds__(kThreads, 1)
    score_tiles(const __grid_constant__ IndexCall call, int tile_rows) {
  extern __shared__ uint8_t raw[];
  wait_for_previous_kernels();
  if constexpr (kOneRow) tile_rows = 1;
  constexpr int kStageBytes = KeyTile<kHalves>::kStageBytes;
  const SharedMemory shared(raw, tile_rows, KeyTile<kHalves>::kWarpKeys, kStageBytes);
  CtaRows rows{.first = 0, .first_score = int64_t{blockIdx.y} * tile_rows, .count = 1};
  rows.first = call.scores.first_row + rows.first_score;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t ring = shared_address(shared.stages) + warp * kStages * kStageBytes;
  const int tile = static_cast<int>(blockIdx.x) * kWarpgroups + warp / 4;
  if constexpr (kOneRow) {
    score_row<kCandidates, kHalves>(call, shared, rows, ring, tile);
  } else {
    const int step = static_cast<int>(gridDim.x) * kWarpgroups;
    rows.count = static_cast<int>(min(int64_t{tile_rows}, call.scores.rows - rows.first_score));
    load_rows(call, shared, rows);
    for (int begin = 0, end = 0; begin < rows.count; begin = end) {
      int visible = 0;
      for (end = begin; end < rows.count && shared.sequence[end] == shared.sequence[begin]; ++end)
        visible = max(visible, shared.visible[end]);
      const KeyRun run = find_run<kCandidates>(
          call, rows.first + begin, call.sequences[shared.sequence[begin]].block_table, visible
      );
      KeyStream<kCandidates, kHalves> keys(call, run, tile, step, ring);
      keys.copy_first();
      score_run<kCandidates, false>(call, shared, rows, begin, end, run, keys, ring, tile, step);
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
  const bool few = call.scores.rows * places < kManyKeys * num_sms();
  if (call.candidates != nullptr) {
    return few ? launch_scores<true, true, 1>(exec, call, 1, places)
               : launch_scores<true, true, 2>(exec, call, 1, places);
  }
  if (tile_rows > 1) return launch_scores<false, false, 1>(exec, call, tile_rows, places);
  if (call.scores.rows > 1) return score_rows_alone(exec, call, places);
  return few ? launch_scores<false, true, 1>(exec, call, 1, places)
             : launch_scores<false, true, 2>(exec, call, 1, places);
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
      .block_mask = static_cast<uint32_t>(op.keys.entries_per_block - 1),
      .scales_at = static_cast<uint32_t>(op.keys.entries_per_block * op.keys.record_bytes),
      .ratio = static_cast<int>(op.ratio),
      .sequences = op.rows.sequences.data(),
      .num_sequences = static_cast<int>(op.rows.sequences.size()),
      .sequence_of = op.rows.sequence_of.data,
      .positions = op.rows.positions.data};
}

void score_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  const int64_t places = max_places(op);
  if (scores.rows == 0 || places == 0) return;
  if (!is_regular(op)) return score_entries_plainly(exec, op, scores);
  score_on_tensor_cores(exec, index_call(op, scores), rows_of_tile(op), places);
}

}  // namespace di::ops::cuda
