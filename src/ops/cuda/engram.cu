// Hash, lookup and gate of the n-gram memory; see engram.h.
#include "ops/cuda/engram.h"
#include "ops/cuda/engram_gate.cuh"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"
#include "ops/weight.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct HashArgs {
  int64_t* ids;
  const int32_t* token_map;
  const int64_t* multipliers;
  const int64_t* primes;
  const int64_t* offsets;
  const SequenceRows* sequences;
  const int32_t* sequence_of;
  const int64_t* positions;
  int64_t pad;
  int64_t rows;
  int lookups;  ///< orders · heads
  int heads;
};

/// A thread for a lookup: mixes its order's tokens from the newest back.
__global__ void __launch_bounds__(kThreads) hash_kernel(HashArgs op) {
  join_kernel_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.rows * op.lookups) return;
  const int64_t row = i / op.lookups;
  const int lookup = static_cast<int>(i % op.lookups);
  const SequenceRows& sequence = op.sequences[op.sequence_of[row]];
  bool blocked = false;
  int64_t mixed = 0;
  for (int back = 0; back <= 1 + lookup / op.heads; ++back) {
    const int64_t position = op.positions[row] - back;
    blocked = blocked || position < 0 ||
              (sequence.is_image != nullptr && sequence.is_image[position] != 0);
    mixed ^= (blocked ? op.pad : op.token_map[sequence.tokens[position]]) * op.multipliers[back];
  }
  op.ids[i] = mixed % op.primes[lookup] + op.offsets[lookup];
}

/// 16 codes as a table holds them: in one piece where it is aligned, else byte by byte.
template <bool kAligned>
__device__ inline uint4 load_codes(const uint8_t* codes) {
  if constexpr (kAligned) return __ldg(reinterpret_cast<const uint4*>(codes));
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    words[i / 4] |= uint32_t{codes[i]} << i % 4 * 8;
  return {words[0], words[1], words[2], words[3]};
}

/// A thread for 16 columns of one lookup, so that everything of a step is on its way at once.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    lookup_kernel(bf16* y, const int64_t* ids, EngramTable table, int64_t pieces) {
  join_kernel_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= pieces) return;
  const int64_t pieces_of_row = table.head_dim / 16;
  const int64_t id = ids[i / pieces_of_row];
  const int64_t d = i % pieces_of_row * 16;
  const uint4 codes = load_codes<kAligned>(table.codes + id * table.head_dim + d);
  const float scale = decode_e8m0(table.scales[(id * table.head_dim + d) / kScaleGroup]);
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  uint32_t pairs[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    const uint32_t two = words[p / 2] >> p % 2 * 16;
    pairs[p] = round_pair(
        decode_e4m3(static_cast<uint8_t>(two)) * scale,
        decode_e4m3(static_cast<uint8_t>(two >> 8)) * scale
    );
  }
  auto* to = reinterpret_cast<uint4*>(y + i * 16);
  to[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  to[1] = {pairs[4], pairs[5], pairs[6], pairs[7]};
}

/// A block for a stream of a row.
__global__ void __launch_bounds__(kThreads) gate_kernel(GateArgs op) {
  __shared__ double scratch[3 * kThreads / 32];
  join_kernel_chain();
  const int64_t c = blockIdx.x;
  const int64_t streams = gridDim.x;
  const int64_t row = blockIdx.y;
  bf16* h = op.h + (row * streams + c) * op.width;
  const bf16* key = op.kv + (row * (streams + 1) + c) * op.width;
  const bf16* value = op.kv + (row * (streams + 1) + streams) * op.width;
  double sums[3] = {};
  for (int64_t d = threadIdx.x * kVector; d < op.width; d += kThreads * kVector) {
    float hs[kVector];
    float keys[kVector];
    float qs[kVector];
    float ks[kVector];
    unpack(load_vector(h + d), hs);
    unpack(load_vector(key + d), keys);
    unpack(load_vector(op.q_weight + c * op.width + d), qs);
    unpack(load_vector(op.k_weight + c * op.width + d), ks);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      sums[0] += hs[i] * (qs[i] * ks[i]) * keys[i];
      sums[1] += hs[i] * hs[i];
      sums[2] += keys[i] * keys[i];
    }
  }
  sum_over_row<kThreads>(sums, scratch);
  const bool is_image = op.is_image != nullptr && op.is_image[row] != 0;
  const float gate = is_image ? 0.0f : engram_gate_of(sums[0], sums[1], sums[2], op.width);
  if (op.gate != nullptr && threadIdx.x == 0) op.gate[row * streams + c] = gate;
  for (int64_t d = threadIdx.x * kVector; d < op.width; d += kThreads * kVector) {
    float hs[kVector];
    float values[kVector];
    unpack(load_vector(h + d), hs);
    unpack(load_vector(value + d), values);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      hs[i] = hs[i] + gate * values[i];
    store_vector(h + d, pack(hs));
  }
}

}  // namespace

void engram_hash(Exec& exec, const EngramHash& op) {
  const int64_t orders = op.multipliers.dim(0) - 1;
  if (op.ids.empty()) return;
  const HashArgs args{
      .ids = op.ids.data,
      .token_map = op.token_map.data,
      .multipliers = op.multipliers.data,
      .primes = op.primes.data,
      .offsets = op.offsets.data,
      .sequences = op.rows.sequences.data(),
      .sequence_of = op.rows.sequence_of.data,
      .positions = op.rows.positions.data,
      .pad = op.pad,
      .rows = op.ids.dim(0),
      .lookups = static_cast<int>(op.ids.dim(1)),
      .heads = static_cast<int>(op.ids.dim(1) / orders)};
  launch_overlapped(
      "engram_hash", hash_kernel, blocks_of(op.ids.size(), kThreads), kThreads, 0, exec.stream, args
  );
}

void engram_lookup(Exec& exec, const EngramLookup& op) {
  need_multiple("engram_lookup: head_dim", op.table.head_dim, kScaleGroup);
  if (op.ids.empty()) return;
  const int64_t pieces = op.ids.size() * op.table.head_dim / 16;
  const unsigned int blocks = blocks_of(pieces, kThreads);
  const bool aligned = reinterpret_cast<uintptr_t>(op.table.codes) % 16 == 0;
  auto* kernel = aligned ? lookup_kernel<true> : lookup_kernel<false>;
  launch_overlapped(
      "engram_lookup",
      kernel,
      blocks,
      kThreads,
      0,
      exec.stream,
      op.y.data,
      op.ids.data,
      op.table,
      pieces
  );
}

void engram_gate(Exec& exec, const EngramGate& op) {
  need_multiple("engram_gate: hidden", op.h.dim(2), kVector);
  if (op.h.empty()) return;
  const dim3 grid(static_cast<unsigned int>(op.h.dim(1)), static_cast<unsigned int>(op.h.dim(0)));
  launch_overlapped("engram_gate", gate_kernel, grid, kThreads, 0, exec.stream, gate_args_of(op));
}

}  // namespace di::ops::cuda
