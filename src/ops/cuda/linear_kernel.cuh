// The streaming matrix product behind the linears: y[tokens, rows] = x[tokens, cols] · Wᵀ.
//
// A CTA has kConsumers warpgroups that multiply and one that brings activations. Each multiplying
// warpgroup owns one row tile of 64 weight rows and a ring of its own in shared memory, which bulk
// copies fill with packed blocks; they are unpacked from there to registers, the A operand. The
// activations, N tokens × 64 columns in bf16, swizzled, are the B operand of all warpgroups of the
// CTA. CTAs stay and walk over units of work; copies of the next unit's weights begin while the
// current one is computed.
#pragma once

#include "ops/cuda/linear_codes.cuh"
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

/// The products of kSteps times 16 columns with a tile of activations.
template <int N, int kSteps>
__device__ void multiply_batch(
    float (&sum)[N / 2], uint32_t (&a)[kSteps][4], uint64_t tile, bool first
) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
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
  /// From product `step` on of the current slot, whose tiles have four.
  __device__ uint64_t tile(int step) const {
    const uint32_t offset = x.slot * T::x_bytes + step / 4 * T::tile_bytes + step % 4 * 32;
    return b_descriptor(0, 0) | (tiles + (offset >> 4));
  }

  /// sum = the products of column blocks [first, last), in one chain, or where `kAdds` in one chain
  /// for each slice of `slice_chunks`, which are added in ascending order. Products of one batch
  /// run on while the next one is unpacked, also beyond the end of a slice; a slot of activations
  /// is given back when its products have ended.
  template <bool kAdds>
  __device__ void multiply(int first, int last, int slice_chunks, float (&sum)[T::N / 2]) {
    constexpr int kSlotSteps = 4 * T::x_chunks;
    uint32_t a[2][T::steps][4];
    float chain[T::N / 2];
    BlockCodes<T::format> codes;
    int used = 0;
    int slice = first;  // where the current one begins
    for (int chunk = first; chunk < last; chunk += 2) {
      const uint32_t stage = stages + w.slot * T::stage_bytes;
      barrier_wait(full + 8 * w.slot, w.parity);
#pragma unroll
      for (int step = 0; step < 8; step += T::steps) {
        uint32_t(&batch)[T::steps][4] = a[step / T::steps % 2];
        if (step % 4 == 0) codes.read(stage + step / 4 * block_bytes(T::format), thread);
#pragma unroll
        for (int k = 0; k < T::steps; ++k)
          codes.get((step + k) % 4, batch[k]);
        const bool begins_slot = step % kSlotSteps == 0;
        if (begins_slot) {
          if (step != 0) x.advance();
          barrier_wait(shared.x_full + 8 * x.slot, x.parity);
        }
        if (kAdds && step == 0 && chunk == slice + slice_chunks) {
          add_slice(chain, slice == first, sum);
          slice = chunk;
        }
        multiply_batch<T::N>(chain, batch, tile(step % kSlotSteps), step == 0 && chunk == slice);
        if (step + T::steps == 8) {
          if (thread % 32 == 0) barrier_arrive(empty + 8 * w.slot);
          w.advance();
        }
        wgmma_wait<1>();
        if (begins_slot) {
          if (chunk != first || step != 0) release_x(used);
          used = x.slot;
        }
      }
      x.advance();
    }
    add_slice(chain, slice == first, sum);
    release_x(used);
  }

 private:
  /// Waits for a slice's chain and adds it to those before it.
  static __device__ void add_slice(
      float (&chain)[T::N / 2], bool is_first, float (&sum)[T::N / 2]
  ) {
    wgmma_wait<0>();
    hold_registers(chain);
#pragma unroll
    for (int i = 0; i < T::N / 2; ++i)
      sum[i] = is_first ? chain[i] : sum[i] + chain[i];
  }
};

/// A thread's sums in shared memory, 16 bytes each 2,048 bytes: sum = what lies there + sum.
template <int N>
__device__ void add_shared(uint32_t total, float (&sum)[N / 2]) {
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const uint4 q = load_shared_16(total + 2048 * j);
    sum[4 * j] = __uint_as_float(q.x) + sum[4 * j];
    sum[4 * j + 1] = __uint_as_float(q.y) + sum[4 * j + 1];
    sum[4 * j + 2] = __uint_as_float(q.z) + sum[4 * j + 2];
    sum[4 * j + 3] = __uint_as_float(q.w) + sum[4 * j + 3];
  }
}
/// Leaves a thread's sums there.
template <int N>
__device__ void store_shared(uint32_t total, const float (&sum)[N / 2]) {
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const uint4 q = make_uint4(
        __float_as_uint(sum[4 * j]),
        __float_as_uint(sum[4 * j + 1]),
        __float_as_uint(sum[4 * j + 2]),
        __float_as_uint(sum[4 * j + 3])
    );
    store_shared_16(total + 2048 * j, q);
  }
}

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
    if constexpr (T::sums == SliceSums::kOne) {
      way.template multiply<false>(unit.first_chunk, unit.last_chunk, 0, sum);
    } else if constexpr (T::sums == SliceSums::kParts) {
      const uint32_t total = shared.y + consumer * T::y_bytes + 16 * thread;
      const int part_chunks = args.part_slices * args.slice_chunks;
      for (int chunk = unit.first_chunk;;) {
        const int end = min(chunk + part_chunks, unit.last_chunk);
        way.template multiply<true>(chunk, end, args.slice_chunks, sum);
        if (chunk != unit.first_chunk) add_shared<T::N>(total, sum);
        if (end == unit.last_chunk) break;
        if (chunk == unit.first_chunk) {
          // The last unit's tile lies there until it has left.
          if (thread == 0) wait_for_stores_to_read();
          named_barrier(1 + consumer, 128);
        }
        store_shared<T::N>(total, sum);
        chunk = end;
      }
    } else {
      way.template multiply<true>(unit.first_chunk, unit.last_chunk, args.slice_chunks, sum);
    }
    if (tile < 0) continue;
    if (args.pieces > 1) {
      write_partial<T>(partial_place<T>(args, unit, consumer), thread, sum);
    } else {
      write(unit, tile, sum);
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
    if constexpr (T::moves_registers) raise_registers<232>();
    consume<T>(args, &y_map, shared, warp / 4, thread);
  } else {
    if constexpr (T::moves_registers) lower_registers<40>();
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
