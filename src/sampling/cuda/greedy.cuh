// Rows of which the model's best token is all that is asked: nearly all that a greedy request
// needs. They hold nothing in shared memory, so that all rows of a step are read at once; draw.cu
// takes the others.
#pragma once

#include "sampling/cuda/best.cuh"
#include "sampling/cuda/draw_args.cuh"
#include "sampling/cuda/mailbox.cuh"

namespace di::sampling::cuda {

/// The best entry of the CTA's part of a row, in every thread of the first warp.
__device__ inline uint64_t best_of_part(const float* logits, int begin, int size, bool is_aligned) {
  __shared__ uint64_t warp_codes[kWarps];
  BestOfThread best;
  if (is_aligned) {
    constexpr int kBatch = 8;  // loads on their way at once
    const auto* vectors = reinterpret_cast<const float4*>(logits);
    for (int first = threadIdx.x; first < size / 4; first += kBatch * kThreads) {
      float4 batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int v = first + i * kThreads;
        if (v < size / 4) batch[i] = __ldcs(vectors + v);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int v = first + i * kThreads;
        if (v < size / 4) best.look(batch[i], 4 * v);
      }
    }
  } else {
    for (int i = threadIdx.x; i < size; i += kThreads)
      best.look(logits[i], i);
  }
  const uint64_t code = best_of_warp(best.code(begin));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) warp_codes[threadIdx.x / 32] = code;
  __syncthreads();
  return best_of_warp(lane < kWarps ? warp_codes[lane] : 0);
}

/// A cluster a row.
template <bool kOfBlocks>
static __global__ void __launch_bounds__(kThreads, 4)
    draw_greedily(const __grid_constant__ Args args) {
  __shared__ Mailbox<uint64_t> mailbox;
  const int cta = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0 && cta == 0) {
    mailbox.prepare();
    make_known();
  }
  __cluster_barrier_arrive_relaxed();
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  const RowOrder order = order_of<kOfBlocks>(args, static_cast<int>(blockIdx.y));
  if (order.slot < 0 || !order.is_plain) return __cluster_barrier_wait();
  const int begin = min(cta * args.part_size, args.vocab_size);
  const int size = min(args.part_size, args.vocab_size - begin);
  const float* logits = args.logits + static_cast<int64_t>(order.row) * args.vocab_size + begin;
  const uint64_t code = best_of_part(logits, begin, size, args.vocab_size % 4 == 0);
  __cluster_barrier_wait();
  if (threadIdx.x == 0) mailbox.send_to(0, cta, code);
  if (cta != 0) return;
  mailbox.await();
  for (int i = static_cast<int>(threadIdx.x); i < args.results.most; i += kThreads)
    args.results.write_top(order.row, i, -1, 0);
  if (threadIdx.x != 0) return;
  uint64_t best = 0;
  for (const uint64_t part : mailbox.letters)
    best = max(best, part);
  const Best entry = best_of_code(best);
  const bool is_usable = entry.is_usable();
  args.results.write(order.row, is_usable ? entry.token : -1, 0);
  if (!is_usable || !args.counts) return;
  if (order.place != nullptr) *order.place = entry.token;
  ++*args.slots[order.slot].num_outputs;
}

}  // namespace di::sampling::cuda
