// Sparse attention for any number of heads and up to 512 channels, in the reference's own
// arithmetic: double sums in its order, so that small models give its bits. A block takes one row
// and kHeads heads.
#pragma once

#include "ops/cuda/attention_list.cuh"
#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/scalars.cuh"

namespace di::ops::cuda::general {

inline constexpr int kHeads = 4;
inline constexpr int kThreads = kHeads * kBlockKeys;
inline constexpr int kMaxDim = 512;

/// The reference's running softmax of one head.
struct Head {
  float top = -1e30f;
  float denominator = 0;
  float decay = 0;  // of the current block
};

struct Shared {
  float* q;    // [kHeads][dim]
  bf16* keys;  // [kBlockKeys][dim + 2]: rows two channels apart fall into other banks
  float (*p)[kBlockKeys];
  Head* heads;
  int* used;  // [kBlockKeys]
};

/// Bytes of dynamic shared memory for `dim` channels.
inline int shared_bytes(int dim) {
  return kHeads * dim * 4 + kBlockKeys * (dim + 2) * 2 + kHeads * kBlockKeys * 4 +
         kHeads * static_cast<int>(sizeof(Head)) + kBlockKeys * 4;
}

__device__ inline Shared carve(unsigned char* memory, int dim) {
  Shared shared;
  shared.q = reinterpret_cast<float*>(memory);
  memory += kHeads * dim * 4;
  shared.p = reinterpret_cast<float(*)[kBlockKeys]>(memory);
  memory += kHeads * kBlockKeys * 4;
  shared.heads = reinterpret_cast<Head*>(memory);
  memory += kHeads * sizeof(Head);
  shared.used = reinterpret_cast<int*>(memory);
  memory += kBlockKeys * 4;
  shared.keys = reinterpret_cast<bf16*>(memory);
  return shared;
}

/// Channel d of a record; exact in bf16.
__device__ inline float decode(const Key& key, int d, int dim) {
  const uint8_t* record = key.record;
  if (key.fp8) return decode_e4m3(record[d]) * decode_e8m0(record[dim + d / 32]);
  const uint8_t code = record[d / 2] >> (d % 2 * 4) & 15;
  return decode_e2m1(code) * decode_e4m3(record[dim / 2 + d / 16]);
}

/// Decodes the block of 64 slots from `first`; unused ones become zeros. Returns whether any is
/// used.
__device__ inline bool load_block(const KeyList& list, int first, int dim, const Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int any = 0;
  for (int k = warp; k < kBlockKeys; k += kThreads / 32) {
    Key found[1];
    list.find(first + k, 0, found);
    const Key key = found[0];
    const bool used = key.record != nullptr;
    if (lane == 0) shared.used[k] = used;
    any |= used;
    for (int d = lane; d < dim; d += 32) {
      shared.keys[k * (dim + 2) + d] = used ? to_bf16(decode(key, d, dim)) : bf16{0};
    }
  }
  return __syncthreads_or(any) != 0;
}

/// Logits of the block: a thread takes one head and one key.
__device__ inline void add_logits(float scale, int dim, const Shared& shared) {
  const int head = static_cast<int>(threadIdx.x) / kBlockKeys;
  const int k = static_cast<int>(threadIdx.x) % kBlockKeys;
  const float* q = shared.q + head * dim;
  const bf16* key = shared.keys + k * (dim + 2);
  double dot = 0;
  for (int d = 0; d < dim; ++d)
    dot = fma(static_cast<double>(q[d]), static_cast<double>(to_float(key[d])), dot);
  shared.p[head][k] = static_cast<float>(dot) * scale;
}

/// The block's maximum joins the head's, logits become p rounded to bf16, and their sum joins the
/// denominator. One thread a head goes through the keys in their order.
__device__ inline void take_block(const Shared& shared) {
  if (threadIdx.x < kHeads) {
    Head& head = shared.heads[threadIdx.x];
    const float* logits = shared.p[threadIdx.x];
    float top = head.top;
    for (int k = 0; k < kBlockKeys; ++k) {
      if (shared.used[k] != 0 && top < logits[k]) top = logits[k];
    }
    head.decay = exp_f32(head.top - top);
    head.top = top;
  }
  __syncthreads();
  const int head = static_cast<int>(threadIdx.x) / kBlockKeys;
  const int k = static_cast<int>(threadIdx.x) % kBlockKeys;
  const float p = shared.used[k] != 0 ? exp_f32(shared.p[head][k] - shared.heads[head].top) : 0.0f;
  shared.p[head][k] = p;
  __syncthreads();
  if (k == 0) {
    double total = 0;
    for (int i = 0; i < kBlockKeys; ++i)
      total += shared.p[head][i];
    Head& state = shared.heads[head];
    state.denominator = state.denominator * state.decay + static_cast<float>(total);
  }
  __syncthreads();
  shared.p[head][k] = round_bf16(p);
  __syncthreads();
}

/// Each thread's share of the sums: channels d, d + 64, … of one head.
__device__ inline void add_values(
    int dim, const Shared& shared, float (&sums)[kMaxDim / kBlockKeys]
) {
  const int head = static_cast<int>(threadIdx.x) / kBlockKeys;
  const int first = static_cast<int>(threadIdx.x) % kBlockKeys;
  const float decay = shared.heads[head].decay;
#pragma unroll
  for (int i = 0; i < kMaxDim / kBlockKeys; ++i) {
    const int d = first + i * kBlockKeys;
    if (d >= dim) break;
    double mixed = 0;
    for (int k = 0; k < kBlockKeys; ++k) {
      mixed =
          fma(static_cast<double>(shared.p[head][k]),
              static_cast<double>(to_float(shared.keys[k * (dim + 2) + d])),
              mixed);
    }
    sums[i] = sums[i] * decay + static_cast<float>(mixed);
  }
}

/// Grid: rows × groups of kHeads heads. Dynamic shared memory: shared_bytes(dim).
__global__ void __launch_bounds__(kThreads) attention(const AttentionCall call) {
  extern __shared__ unsigned char memory[];
  const int row = static_cast<int>(blockIdx.x);
  const int dim = call.dim;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;
  const int count = min(kHeads, call.heads - first_head);
  const int64_t offset = (static_cast<int64_t>(row) * call.heads + first_head) * dim;
  const Shared shared = carve(memory, dim);
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * dim; i += kThreads)
    shared.q[i] = i < count * dim ? to_float(call.q[offset + i]) : 0.0f;
  if (threadIdx.x < kHeads) shared.heads[threadIdx.x] = Head();
  const KeyList list(call, row);
  float sums[kMaxDim / kBlockKeys] = {};
  bool any = false;
  __syncthreads();
  for (int first = 0; first < list.slots(); first += kBlockKeys) {
    if (load_block(list, first, dim, shared)) {
      any = true;
      add_logits(call.scale, dim, shared);
      __syncthreads();
      take_block(shared);
      add_values(dim, shared, sums);
    }
    __syncthreads();
  }
  const int head = static_cast<int>(threadIdx.x) / kBlockKeys;
  if (head >= count) return;
  const Head state = shared.heads[head];
  const float denominator = state.denominator + exp_f32(call.sink[first_head + head] - state.top);
  bf16* o = call.o + offset + head * dim;
#pragma unroll
  for (int i = 0; i < kMaxDim / kBlockKeys; ++i) {
    const int d = static_cast<int>(threadIdx.x) % kBlockKeys + i * kBlockKeys;
    if (d < dim) o[d] = any ? to_bf16(__fdiv_rn(sums[i], denominator)) : bf16{0};
  }
}

}  // namespace di::ops::cuda::general
