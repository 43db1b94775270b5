// The linear kernel's activations: tiles of N tokens x 64 columns in bf16, swizzled in shared
// memory, brought by tensor loads (bf16 in device memory) or expanded from Q8 codes by a warpgroup.
#pragma once

#include "ops/cuda/linear_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// Brings bf16 activations by tensor loads. One thread.
template <class T>
__device__ void load_activations(
    const LinearArgs& args, const CUtensorMap* map, const LinearShared<T>& shared
) {
  RingPlace<T::x_stages> place;
  for (ChunkCursor at(args, T::consumers, 0); !at.done(); at.advance(T::x_chunks)) {
    barrier_wait(shared.x_empty + 8 * place.slot, place.parity ^ 1);
    const uint32_t full = shared.x_full + 8 * place.slot;
    barrier_expect(full, T::x_bytes);
#pragma unroll
    for (int i = 0; i < T::x_chunks; ++i) {
      const uint32_t tile = shared.x + place.slot * T::x_bytes + i * T::tile_bytes;
      const int col = (at.chunk + i) * kBlockCols;
      tensor_load(tile, map, col, at.unit.group, at.unit.token * T::N, full);
    }
    place.advance();
  }
}

/// One thread's pieces of 16 codes of a slot, on their way through registers.
template <class T>
struct CodePieces {
  uint4 codes[T::pieces];
  uint8_t scale[T::pieces];

  static __device__ int row(int thread, int piece) {
    return thread / T::row_pieces + piece * (T::slot_threads / T::row_pieces);
  }

  __device__ void fetch(const LinearArgs& args, const ChunkCursor& at, int thread, int piece) {
    const int token = at.unit.token * T::N + row(thread, piece);
    const int col = at.chunk * kBlockCols + 16 * (thread % T::row_pieces);
    codes[piece] = make_uint4(0, 0, 0, 0);
    scale[piece] = 0;
    if (at.done() || token >= args.tokens || col >= args.cols) return;
    const int64_t index = static_cast<int64_t>(token) * args.cols + col;
    codes[piece] = *reinterpret_cast<const uint4*>(args.codes + index);
    scale[piece] = args.scales[index / kScaleGroup];
  }

  __device__ void store(uint32_t slot, int thread, int piece) const {
    uint4 x[2];
    expand_activations(codes[piece], scale[piece], x);
    const int column = thread % T::row_pieces;
    const uint32_t line = slot + column / 4 * T::tile_bytes + 128 * row(thread, piece);
    const int swizzle = row(thread, piece) & 7;
    store_shared_16(line + 16 * ((2 * (column % 4)) ^ swizzle), x[0]);
    store_shared_16(line + 16 * ((2 * (column % 4) + 1) ^ swizzle), x[1]);
  }
};

/// Brings Q8 activations; codes of the next slot are fetched while those of this one are expanded.
/// All threads of the warpgroup: sets of slot_threads take turns.
template <class T>
__device__ void expand_slots(const LinearArgs& args, const LinearShared<T>& shared, int thread) {
  constexpr int kSets = 128 / T::slot_threads;
  const int set = thread / T::slot_threads;
  thread %= T::slot_threads;
  ChunkCursor ahead(args, T::consumers, set * T::x_chunks);
  CodePieces<T> pieces;
#pragma unroll
  for (int p = 0; p < T::pieces; ++p)
    pieces.fetch(args, ahead, thread, p);
  for (int count = set; !ahead.done(); count += kSets) {
    const int slot = count % T::x_stages;
    ahead.advance(kSets * T::x_chunks);
    barrier_wait(shared.x_empty + 8 * slot, (count / T::x_stages & 1) ^ 1);
#pragma unroll
    for (int p = 0; p < T::pieces; ++p) {
      pieces.store(shared.x + slot * T::x_bytes, thread, p);
      pieces.fetch(args, ahead, thread, p);
    }
    fence_async_proxy();
    __syncwarp();
    if (thread % 32 == 0) barrier_arrive(shared.x_full + 8 * slot);
  }
}

}  // namespace di::ops::cuda
