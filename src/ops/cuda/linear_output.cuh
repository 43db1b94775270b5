// The linear kernel's results: from the registers of a finished tile to the op's output, or
// to scratch, where the sums of a matrix' slices meet.
#pragma once

#include "ops/cuda/linear_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/vectors.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// Two sums, scaled, as the op wants them in bf16: the first in the lower half.
__device__ inline uint32_t finish(const LinearArgs& args, float a, float b) {
  const uint32_t y = round_bf16_pair(a * args.unscale, b * args.unscale);
  if (args.y_factor == 1.0f) return y;
  return round_bf16_pair(
      __uint_as_float(y << 16) * args.y_factor, __uint_as_float(y & 0xffff0000u) * args.y_factor
  );
}

/// Rows `row` and `row` + 1 of a result, of which a unit may own one only.
struct RowPair {
  int row;
  bool first, second;

  /// Those that a thread of the warpgroup of row tile `tile` holds.
  __device__ RowPair(const LinearArgs& args, int group, int tile, int thread)
      : row(tile * kBlockRows + thread / 32 * 16 + 2 * (thread % 32 / 4)) {
    const int begin = group * args.group_rows;
    const int end = min(args.rows, begin + args.group_rows);
    first = row >= begin && row < end;
    second = row + 1 >= begin && row + 1 < end;
  }
};

/// Stores a pair in one access where that is aligned: `even` says that rows of `to` are.
__device__ inline void store_pair(bf16* to, const RowPair& rows, bool even, uint32_t pair) {
  if (rows.first && rows.second && even) {
    *reinterpret_cast<uint32_t*>(to) = pair;
  } else {
    if (rows.first) to[0] = {static_cast<uint16_t>(pair)};
    if (rows.second) to[1] = {static_cast<uint16_t>(pair >> 16)};
  }
}
__device__ inline void store_pair(float* to, const RowPair& rows, bool even, float2 pair) {
  if (rows.first && rows.second && even) {
    *reinterpret_cast<float2*>(to) = pair;
  } else {
    if (rows.first) to[0] = pair.x;
    if (rows.second) to[1] = pair.y;
  }
}

/// The sums of two rows for one token, to where the op wants them.
__device__ inline void write_output(
    const LinearArgs& args, const RowPair& rows, int64_t token, float a, float b
) {
  const int64_t at = token * args.rows + rows.row;
  const bool even = args.rows % 2 == 0;
  if (args.y_f32 != nullptr) {
    store_pair(args.y_f32 + at, rows, even, make_float2(a * args.unscale, b * args.unscale));
  } else {
    store_pair(args.y + at, rows, even, finish(args, a, b));
  }
}

/// The largest magnitude of the warp's 16 rows for the token of `pair`, a lane's two rows in bf16;
/// lanes of other tokens differ in lane mod 4.
__device__ inline float largest_of_strip(uint32_t pair) {
  const float a = __uint_as_float(pair << 16);
  const float b = __uint_as_float(pair & 0xffff0000u);
  float amax = fmaxf(fmaxf(0.0f, fabsf(a)), fabsf(b));
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2)
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, distance));
  return amax;
}

/// Two rows from `row` on of a token in Q8, whose group of 32 rows has magnitudes up to `amax`.
__device__ inline void write_q8(
    const LinearArgs& args, int row, int64_t token, uint32_t pair, float amax
) {
  const int64_t at = token * args.rows + row;
  const uint8_t scale = q8_scale(amax);
  const uint32_t codes =
      q8_codes(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u), q8_inverse(scale));
  *reinterpret_cast<uint16_t*>(args.y_codes + at) = static_cast<uint16_t>(codes);
  if (row % kScaleGroup == 0) args.y_scales[at / kScaleGroup] = scale;
}

/// A warp's share of a result that is wanted in bf16 and in Q8: sums (x, z) of token `token` and
/// (y, w) of the next, 16 rows of which lane / 4 counts pairs. `largest` is this warp's place in
/// shared memory for 8 numbers, `other` that of the warp with the other half of the group of 32.
/// All threads of the CTA call it; nothing is written unless `writes`.
__device__ inline void write_outputs_q8(
    const LinearArgs& args,
    const RowPair& rows,
    int token,
    const float4& sum,
    float* largest,
    const float* other,
    bool writes
) {
  const uint32_t pairs[2] = {finish(args, sum.x, sum.z), finish(args, sum.y, sum.w)};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float amax[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    amax[i] = largest_of_strip(pairs[i]);
    if (writes && lane < 4) largest[2 * lane + i] = amax[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!writes || token + i >= args.tokens) continue;
    const int64_t at = int64_t{token + i} * args.rows + rows.row;
    *reinterpret_cast<uint32_t*>(args.y + at) = pairs[i];
    write_q8(args, rows.row, token + i, pairs[i], fmaxf(amax[i], other[2 * (lane % 4) + i]));
  }
}

/// A finished tile of a warpgroup: what one of its threads holds.
template <class T>
__device__ void write_tile(
    const LinearArgs& args,
    const LinearUnit& unit,
    int tile,
    int thread,
    const float (&sum)[T::N / 2]
) {
  const RowPair rows(args, unit.group, tile, thread);
  const int first = unit.token * T::N + 2 * (thread % 4);
  const bool plain = args.y_f32 == nullptr && args.rows % 2 == 0 && rows.first && rows.second;
  bf16* to = args.y + rows.row;
#pragma unroll
  for (int i = 0; i < T::N / 4; ++i) {
    const int64_t token = first + i / 2 * 8 + i % 2;
    const float a = sum[i / 2 * 4 + i % 2];
    const float b = sum[i / 2 * 4 + i % 2 + 2];
    if (token >= args.tokens) continue;
    if (plain) {
      *reinterpret_cast<uint32_t*>(to + token * args.rows) = finish(args, a, b);
    } else {
      write_output(args, rows, token, a, b);
    }
  }
}

/// A finished tile, through shared memory: tokens × 64 rows in bf16, swizzled, which one thread
/// sends off as a whole. The warpgroup meets at the named barrier `barrier`.
template <class T>
__device__ void store_tile(
    const LinearArgs& args,
    const LinearUnit& unit,
    const CUtensorMap* y_map,
    int tile,
    uint32_t memory,
    int barrier,
    int thread,
    const float (&sum)[T::N / 2]
) {
  if (thread == 0) wait_for_stores_to_read();
  named_barrier(barrier, 128);
  const int piece = thread / 32 * 2 + thread % 32 / 16;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = 2 * (thread % 4) + i;
    const uint32_t place = memory + swizzled_offset(token, piece) + thread % 16 / 4 * 4;
#pragma unroll
    for (int j = 0; j < T::N / 8; ++j)
      store_shared_4(place + 1024 * j, finish(args, sum[4 * j + i], sum[4 * j + i + 2]));
  }
  fence_async_proxy();
  named_barrier(barrier, 128);
  if (thread == 0) {
    tensor_store(memory, y_map, tile * kBlockRows, 0, unit.token * T::N);
    commit_stores();
  }
}

/// A warpgroup's sums of one piece, to scratch.
template <class T>
__device__ void write_partial(float4* to, int thread, const float (&sum)[T::N / 2]) {
#pragma unroll
  for (int j = 0; j < T::N / 8; ++j) {
    to[128 * j + thread] = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
  }
}

/// Element by element.
__device__ inline float4 add(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/// The sum in ascending order of `count` float4 that lie `stride` apart.
__device__ inline float4 sum_in_order(const float4* from, int count, int stride) {
  constexpr int kBatch = 5;  // that are fetched together
  float4 sum{};
  for (int base = 0; base < count; base += kBatch) {
    float4 next[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (base + i < count) next[i] = from[(base + i) * stride];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (base + i < count) sum = base + i == 0 ? next[0] : add(sum, next[i]);
  }
  return sum;
}

/// Adds the pieces of a tile: the slices of each part, where pieces are slices, and then the parts.
/// Grid: (8 tokens of a token tile, row tiles of all groups, token tiles), 128 threads.
template <class T>
__global__ void add_pieces(const __grid_constant__ LinearArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  LinearUnit unit(args, 0, 1);
  unit.group = static_cast<int>(blockIdx.y) / args.group_tiles;
  unit.first_tile = static_cast<int>(blockIdx.y) % args.group_tiles;
  unit.token = static_cast<int>(blockIdx.z);
  unit.piece = 0;
  const int tile = unit_tile(args, unit, 0);
  const int thread = static_cast<int>(threadIdx.x);
  const int token = unit.token * T::N + 8 * static_cast<int>(blockIdx.x) + 2 * (thread % 4);
  if (tile < 0) return;
  const float4* from = partial_place<T>(args, unit, 0) + 128 * blockIdx.x + thread;
  const int part = args.piece_slices == 1 ? args.part_slices : args.pieces;
  constexpr int kStride = T::N / 8 * 128;
  float4 sum{};
  for (int first = 0; first < args.pieces; first += part) {
    const float4 next =
        sum_in_order(from + first * kStride, min(part, args.pieces - first), kStride);
    sum = first == 0 ? next : add(sum, next);
  }
  const RowPair rows(args, unit.group, tile, thread);
  if (args.y_codes != nullptr) {
    __shared__ float largest[4][8];
    const int warp = thread / 32;
    return write_outputs_q8(args, rows, token, sum, largest[warp], largest[warp ^ 1], true);
  }
  if (token < args.tokens) write_output(args, rows, token, sum.x, sum.z);
  if (token + 1 < args.tokens) write_output(args, rows, token + 1, sum.y, sum.w);
}

}  // namespace di::ops::cuda
