// The streaming matrix product behind the linears: y[tokens, rows] = x[tokens, cols] · Wᵀ.
//
// A CTA has kConsumers warpgroups that multiply and one that brings activations. Each multiplying
// warpgroup owns one row tile of 64 weight rows and a ring of its own in shared memory, which bulk
// copies fill with packed blocks; they are unpacked from there to registers, the A operand. The
// activations, N tokens × 64 columns in bf16, swizzled, are the B operand of all warpgroups of the
// CTA. CTAs stay and walk over units of work; copies of the next unit's weights begin while the
// current one is computed.
#pragma once

#include "ops/cuda/linear_output.cuh"
#include "ops/cuda/linear_rows.cuh"
#include "ops/cuda/linear_work.cuh"

namespace di::ops::cuda {

/// Asks for packed blocks, two at a time, for all multiplying warpgroups of the CTA. One thread.
template <class T>
__device__ void load_weights(const LinearArgs& args, const LinearShared<T>& shared) {
  RingPlace<T::w_stages> place;
  for (ChunkCursor at(args, T::consumers, 0); !at.done(); at.advance(2)) {
#pragma unroll
    for (int consumer = 0; consumer < T::consumers; ++consumer) {
      const int slot = consumer * T::w_stages + place.slot;
      const int tile = unit_tile(args, at.unit, consumer);
      const int64_t block = static_cast<int64_t>(tile) * args.chunks + at.chunk;
      const uint32_t full = shared.w_full + 8 * slot;
      barrier_wait(shared.w_empty + 8 * slot, place.parity ^ 1);
      if (tile < 0) {
        barrier_arrive(full);
        continue;
      }
      barrier_expect(full, T::stage_bytes);
      bulk_load_streaming(
          shared.weights + slot * T::stage_bytes,
          args.weights + block * block_bytes(T::format),
          T::stage_bytes,
          full
      );
    }
    place.advance();
  }
}

/// The A fragments of one block: registers [product of 16 columns][4].
template <WeightFormat kFormat>
__device__ void load_fragments(uint32_t block, int thread, uint32_t (&a)[4][4]) {
  const uint32_t pieces = block + 16 * thread;
  if constexpr (kFormat == WeightFormat::kFp4) {
    const uint4 q = load_shared_16(pieces);
    const uint32_t m = load_shared_4(block + 2048 + thread / 4 * 4);
    const uint32_t upper[2] = {fp4_multiplier_pair(m, 0), fp4_multiplier_pair(m, 2)};
    const uint32_t lower[2] = {fp4_multiplier_pair(m, 1), fp4_multiplier_pair(m, 3)};
    unpack_fp4(q.x, upper[0], lower[0], a[0]);
    unpack_fp4(q.y, upper[0], lower[0], a[1]);
    unpack_fp4(q.z, upper[1], lower[1], a[2]);
    unpack_fp4(q.w, upper[1], lower[1], a[3]);
  } else if constexpr (kFormat == WeightFormat::kFp8) {
    const uint32_t m = load_shared_4(block + 4096) >> thread / 64 * 16;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const uint4 q = load_shared_16(pieces + 2048 * group);
      unpack_fp8_group(q, m >> 8 * group & 255, a[2 * group], a[2 * group + 1]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 q = load_shared_16(pieces + 2048 * k);
      a[k][0] = q.x;
      a[k][1] = q.y;
      a[k][2] = q.z;
      a[k][3] = q.w;
    }
  }
}

/// The products of one block of 64 columns with one tile of activations.
template <int N>
__device__ void multiply(float (&sum)[N / 2], uint32_t (&a)[4][4], uint64_t tile, bool first) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    wgmma_bf16<N>(sum, a[k], tile + 2 * k, k != 0 || !first);
  wgmma_commit();
}

/// A multiplying warpgroup's way through its slots.
template <class T>
struct Consumer {
  const LinearShared<T>& shared;
  int thread;
  uint32_t stages, full, empty;  ///< of this warpgroup's weights
  uint32_t tiles;                ///< lower half of the descriptor of the first tile of activations
  RingPlace<T::w_stages> w;
  RingPlace<T::x_stages> x;

  __device__ Consumer(const LinearShared<T>& memory, int consumer, int thread_of_group)
      : shared(memory),
        thread(thread_of_group),
        stages(memory.weights + consumer * T::w_stages * T::stage_bytes),
        full(memory.w_full + 8 * consumer * T::w_stages),
        empty(memory.w_empty + 8 * consumer * T::w_stages),
        tiles(static_cast<uint32_t>(b_descriptor(memory.x, 0))) {
    // Kept in a register: found anew for each product, it would hold up the tensor cores.
    asm volatile("" : "+r"(tiles));
  }

  /// Gives a slot of activations back.
  __device__ void release_x(int slot) const {
    if (thread % 32 == 0) barrier_arrive(shared.x_empty + 8 * slot);
  }
  __device__ uint64_t tile(int i) const {
    const uint32_t offset = (x.slot * T::x_bytes + i * T::tile_bytes) >> 4;
    return b_descriptor(0, 0) | (tiles + offset);
  }

  /// sum = the products of `chunks` column blocks, in one chain. Products of the last block run on
  /// while the next one is unpacked; a slot of activations is given back when they have ended.
  __device__ void multiply_slice(int chunks, float (&sum)[T::N / 2]) {
    uint32_t even[4][4];
    uint32_t odd[4][4];
    int used = 0;
    for (int chunk = 0; chunk < chunks; chunk += 2) {
      const uint32_t stage = stages + w.slot * T::stage_bytes;
      barrier_wait(full + 8 * w.slot, w.parity);
      load_fragments<T::format>(stage, thread, even);
      barrier_wait(shared.x_full + 8 * x.slot, x.parity);
      multiply<T::N>(sum, even, tile(0), chunk == 0);
      wgmma_wait<1>();
      if (chunk != 0) release_x(used);
      used = x.slot;
      load_fragments<T::format>(stage + block_bytes(T::format), thread, odd);
      if constexpr (T::x_chunks == 1) {
        x.advance();
        barrier_wait(shared.x_full + 8 * x.slot, x.parity);
      }
      multiply<T::N>(sum, odd, tile(T::x_chunks - 1), false);
      if (thread % 32 == 0) barrier_arrive(empty + 8 * w.slot);
      w.advance();
      wgmma_wait<1>();
      if constexpr (T::x_chunks == 1) release_x(used);
      used = x.slot;
      x.advance();
    }
    wgmma_wait<0>();
    hold_registers(sum);
    release_x(used);
  }
};

/// Works off the CTA's units as one of its multiplying warpgroups.
template <class T>
__device__ void consume(
    const LinearArgs& args,
    const CUtensorMap* y_map,
    const LinearShared<T>& shared,
    int consumer,
    int thread
) {
  const auto write = [&](const LinearUnit& unit, int tile, const float(&sum)[T::N / 2]) {
    if constexpr (T::y_bytes != 0) {
      const uint32_t memory = shared.y + consumer * T::y_bytes;
      if (args.stores_tiles)
        return store_tile<T>(args, unit, y_map, tile, memory, 1 + consumer, thread, sum);
    }
    write_tile<T>(args, unit, tile, thread, sum);
  };
  Consumer<T> way(shared, consumer, thread);
  for (int index = blockIdx.x; index < args.units; index += gridDim.x) {
    const LinearUnit unit(args, index, T::consumers);
    const int tile = unit_tile(args, unit, consumer);
    float sum[T::N / 2];
    if constexpr (T::add_slices) {
      float total[T::N / 2];
      for (int chunk = unit.first_chunk; chunk < unit.last_chunk; chunk += args.slice_chunks) {
        way.multiply_slice(min(args.slice_chunks, unit.last_chunk - chunk), sum);
#pragma unroll
        for (int i = 0; i < T::N / 2; ++i)
          total[i] = chunk == unit.first_chunk ? sum[i] : total[i] + sum[i];
      }
      if (tile >= 0) write(unit, tile, total);
    } else {
      way.multiply_slice(unit.last_chunk - unit.first_chunk, sum);
      if (args.slices > 1) {
        if (tile >= 0) write_partial<T>(partial_place<T>(args, unit, consumer), thread, sum);
      } else if (tile >= 0) {
        write(unit, tile, sum);
      }
    }
  }
  if (thread == 0) wait_for_stores();
}

template <class T>
__global__ void __launch_bounds__(T::threads, 1) linear_kernel(
    const __grid_constant__ LinearArgs args,
    const __grid_constant__ CUtensorMap x_map,
    const __grid_constant__ CUtensorMap y_map
) {
  extern __shared__ std::byte dynamic_shared[];
  const LinearShared<T> shared(shared_address(dynamic_shared));
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();
  let_next_kernel_start();
  if (warp < 4 * T::consumers) {
    if constexpr (T::moves_registers) raise_registers<224>();
    consume<T>(args, &y_map, shared, warp / 4, thread);
  } else {
    if constexpr (T::moves_registers) lower_registers<56>();
    if (warp == T::weights_warp) {
      if (thread % 32 == 0) load_weights<T>(args, shared);
    } else {
      wait_for_previous_kernels();
      if constexpr (T::q8) {
        expand_slots<T>(args, shared, thread);
      } else if (thread == 0) {
        load_activations<T>(args, &x_map, shared);
      }
    }
  }
}

}  // namespace di::ops::cuda
