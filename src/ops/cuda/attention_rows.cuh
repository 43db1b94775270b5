// Sparse attention of many rows, up to 64 heads of 512 channels: a block of four warpgroups takes
// one row after another, and of each row one block of 64 keys after another.
//
// One warpgroup brings records in registers and unpacks them into a tile, which serves as K and as
// V. One brings the queries and computes logits and the softmax; two multiply P, which travels
// through shared memory, with a half of the output channels each. The last also resolves the next
// row's list.
#pragma once

#include "ops/cuda/attention_rows_tiles.cuh"
#include "ops/cuda/attention_rows_weigh.cuh"

namespace di::ops::cuda::rows {

/// A mixer's half of the output channels of one row, in two quarters: one product of 256 columns
/// would need more registers than a thread has when the kernel starts.
struct Values {
  float sums[2][64] = {};  // set, or the registers would be taken before they are used

  /// What is left of older blocks' sums in rows r and r + 8.
  __device__ void decay(float upper, float lower) {
    if (!__any_sync(0xffffffffu, upper != 1.0f || lower != 1.0f)) return;
#pragma unroll
    for (auto& quarter : sums) {
#pragma unroll
      for (int i = 0; i < 64; i += 4) {
        quarter[i] *= upper;
        quarter[i + 1] *= upper;
        quarter[i + 2] *= lower;
        quarter[i + 3] *= lower;
      }
    }
  }

  /// Starts += P · V; the first block of a row sets the sums.
  __device__ void begin(const unsigned char* weights, const unsigned char* half_tile, bool first) {
    const uint64_t p = b_descriptor(shared_address(weights), 0);
    const uint64_t v = values_descriptor(shared_address(half_tile), kColumnBytes);
    hold_registers(sums[0]);
    hold_registers(sums[1]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int quarter = 0; quarter < 2; ++quarter) {
        const uint64_t columns = v + quarter * (2 * kColumnBytes / 16) + step * kValuesStep;
        wgmma_shared_values(sums[quarter], p + step * 2, columns, !first || step);
      }
    }
    wgmma_commit();
  }

  /// Waits for the products.
  __device__ void finish() {
    wgmma_wait<0>();
    hold_registers(sums[0]);
    hold_registers(sums[1]);
  }

  /// Writes channels [256 · half, 256 · half + 256) of the thread's two heads.
  __device__ void store(
      const AttentionCall& call, int row, int half, float upper, float lower, int thread
  ) const {
    const int head = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (head + side * 8 >= call.heads) break;
      bf16* o = call.o + (static_cast<int64_t>(row) * call.heads + head + side * 8) * kTileDim +
                half * 256 + thread % 4 * kVector;
#pragma unroll
      for (int piece = 0; piece < 8; ++piece) {
        store_vector(
            o + piece * kPieceDim,
            output_vector(sums[piece / 4] + piece % 4 * 16, side * 2, side == 0 ? upper : lower)
        );
      }
    }
  }
};

/// A warpgroup of half the output channels. That of the right half (`kHalf` = 1) also resolves the
/// next row's list.
template <int kHalf>
__device__ inline void mix(
    const AttentionCall& call, Shared& shared, const RowLists& lists, int thread
) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  RingPlace<kStages> place;
  uint32_t number = 0;
  if constexpr (kHalf == 1) lists.find(static_cast<int>(blockIdx.x), 0, thread);
  for (int row = static_cast<int>(blockIdx.x); row < call.rows; row += gridDim.x, ++number) {
    const int next = row + static_cast<int>(gridDim.x);
    if constexpr (kHalf == 1) {
      if (next < call.rows) {
        lists.find(next, number + 1, thread);
        const int later = next + static_cast<int>(gridDim.x);
        if (later < call.rows) warm_row(call, later, thread);
      } else {
        let_next_kernel_start();
      }
    }
    Values values;
    int blocks = 1;
    for (int block = 0; block < blocks; ++block) {
      const int slot = place.slot;
      barrier_wait(&shared.weights_full[slot], place.parity);
      if (block == 0) blocks = blocks_of(lists.slots(number));
      if constexpr (kHalf == 1) {
        const int later = row + 2 * static_cast<int>(gridDim.x);
        if (block == 2 && later < call.rows) warm_sequence(call, later, thread);
      }
      if (block > 0) values.decay(shared.decay[slot][head], shared.decay[slot][head + 8]);
      values.begin(shared.weights[slot], shared.keys[slot] + kHalf * kHalfBytes, block == 0);
      values.finish();
      barrier_arrive(&shared.empty[slot][kHalf]);
      place.advance();
    }
    const float* inverse = shared.inverse[number % kRowsAhead];
    barrier_wait(&shared.inverse_full[number % kRowsAhead], number / kRowsAhead % 2);
    values.store(call, row, kHalf, inverse[head], inverse[head + 8], thread);
  }
}

/// Grid: at most as many blocks as rows; the rows go round among them.
__global__ void __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ AttentionCall call) {
  extern __shared__ unsigned char memory[];
  Shared& shared =
      *reinterpret_cast<Shared*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  if (threadIdx.x == 0) initialise(shared);
  __syncthreads();
  wait_for_previous_kernels();
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const RowLists lists(call, shared, reinterpret_cast<unsigned char*>(&shared + 1));
  switch (threadIdx.x / 128) {
    case 0:
      lower_registers<kProducerRegisters>();
      Producer(call, shared, lists, thread).run();
      break;
    case 1:
      lower_registers<kWeigherRegisters>();
      weigh(call, shared, lists, thread);
      break;
    case 2:
      raise_registers<kLeftRegisters>();
      mix<0>(call, shared, lists, thread);
      break;
    default: raise_registers<kRightRegisters>(); mix<1>(call, shared, lists, thread);
  }
}

}  // namespace di::ops::cuda::rows
