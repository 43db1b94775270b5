// Sparse attention of many rows, up to 64 heads of 512 channels: a block of three warpgroups takes
// one row after another, and of each row one block of 64 keys after another.
//
// The producer gathers records and unpacks them into a tile that serves as K and as V. The first
// consumer computes logits and the softmax and the left half of the output channels, the second
// one the right half from the same P. P and the decay travel in registers' order through shared
// memory.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::rows {

inline constexpr int kThreads = 384;
inline constexpr int kStages = 2;
inline constexpr int kHalfBytes = kTileBytes / 2;
inline constexpr int kColumnBytes = kTileBytes / 8;
inline constexpr int kWeightBytes = kTileRows * kBlockKeys * 2;
inline constexpr int kRowsAhead = 4;  // rows that the producer may be ahead, and one more

/// What the warpgroups share. The tiles come first: they are aligned to 1024 bytes.
struct Shared {
  unsigned char q[kTileBytes];
  unsigned char keys[kStages][kTileBytes];
  uint4 weights[2][4][128];  // P of a block as A fragments of the first consumer's threads
  float decay[2][kTileRows];
  float inverse[kTileRows];  // of the denominator
  uint64_t used[kStages];    // bit k: slot k of the stage's block holds a key
  int slots[kRowsAhead];     // slots up to the last used one, of the rows under way
  int warp_slots[4];
  uint64_t full[kStages][2];  // halves of a stage, by channels
  uint64_t empty[kStages][2];
  uint64_t weights_full[2];
  uint64_t weights_empty[2];
  uint64_t queries_full;
  uint64_t inverse_full;
  uint64_t logits_done[2];
};

/// Dynamic shared memory: Shared, one bit and one PackedKey a slot, and the alignment's slack.
inline int shared_bytes(const AttentionCall& call) {
  return static_cast<int>(sizeof(Shared)) + call.rounded_slots() * 8 + call.rounded_slots() / 8 +
         1024;
}

/// Blocks of a list; an empty list is one block without keys.
__device__ inline int blocks_of(int slots) {
  return max((slots + kBlockKeys - 1) / kBlockKeys, 1);
}

__device__ inline void initialise(Shared& shared) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (int half = 0; half < 2; ++half) {
      barrier_init(&shared.full[stage][half], 4);
      barrier_init(&shared.empty[stage][half], 4);
    }
  }
  barrier_init(&shared.queries_full, 4);
  barrier_init(&shared.inverse_full, 4);
  for (int i = 0; i < 2; ++i) {
    barrier_init(&shared.weights_full[i], 4);
    barrier_init(&shared.weights_empty[i], 4);
    barrier_init(&shared.logits_done[i], 4);
  }
  barrier_init_fence();
}

/// One arrival of a warp, after all of its lanes came here.
__device__ inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// The producer warpgroup.
class Producer {
 public:
  __device__ Producer(const AttentionCall& call, Shared& shared, unsigned char* lists, int thread)
      : call_(call), shared_(shared), warp_(thread / 32), lane_(thread % 32) {
    keys_ = reinterpret_cast<PackedKey*>(lists);
    used_ = reinterpret_cast<uint32_t*>(keys_ + call.rounded_slots());
  }

  __device__ void run() {
    int number = 0;
    for (int row = static_cast<int>(blockIdx.x); row < call_.rows; row += gridDim.x, ++number) {
      const int slots = list_keys(row);
      if (warp_ == 0 && lane_ == 0) shared_.slots[number % kRowsAhead] = slots;
      const int blocks = blocks_of(slots);
      RawPiece raw[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        raw[i] = load(0, i);
      for (int block = 0; block < blocks; ++block) {
        if (warp_ == 0 && lane_ == 0) {
          barrier_wait(&shared_.empty[place_.slot][0], place_.parity ^ 1);
          shared_.used[place_.slot] = uint64_t{used_[2 * block]} | uint64_t{used_[2 * block + 1]}
                                                                       << 32;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          barrier_wait(&shared_.empty[place_.slot][half], place_.parity ^ 1);
#pragma unroll
          for (int i = 0; i < kAhead; ++i) {
            const int item = 2 * block + half;
            place(half, i, raw[i]);
            if (item + 1 < 2 * blocks) raw[i] = load(item + 1, i);
          }
          fence_async_proxy();
          warp_arrive(&shared_.full[place_.slot][half]);
        }
        place_.advance();
      }
    }
  }

 private:
  static constexpr int kAhead = 4;  // pieces of a thread in half a tile, eight keys apart

  /// The thread's piece i in a half tile; half tiles of a row are counted through. Warps 0 and 1
  /// take keys 0 to 31, the others the rest; lanes of a piece take eight keys.
  __device__ RawPiece load(int half_tile, int i) const {
    const int key = half_tile / 2 * kBlockKeys + (warp_ / 2 * kAhead + i) * 8 + lane_ % 8;
    const int piece = half_tile % 2 * (kPieces / 2) + warp_ % 2 * 4 + lane_ / 8;
    return load_piece(keys_[key], piece);
  }

  __device__ void place(int half, int i, const RawPiece& raw) const {
    unsigned char* block =
        shared_.keys[place_.slot] + half * kHalfBytes + (warp_ % 2 * 2 + lane_ / 16) * kColumnBytes;
    place_piece(block + (warp_ / 2 * kAhead + i) * 8 * 128, lane_ % 8, lane_ / 8 % 2, raw);
  }

  /// Resolves the row's list; slots up to the last used one.
  __device__ int list_keys(int row) {
    const KeyList list(call_, row);
    named_barrier(1, 128);  // nobody reads the former list any more
    int last = 0;
    const int rounded = (list.slots() + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
#pragma unroll 2
    for (int slot = warp_ * 32 + lane_; slot < rounded; slot += 128) {
      const PackedKey key = slot < list.slots() ? pack_key(list[slot]) : 0;
      keys_[slot] = key;
      const uint32_t used = __ballot_sync(0xffffffffu, key != 0);
      if (lane_ == 0) used_[slot / 32] = used;
      if (used != 0) last = slot / 32 * 32 + 32 - __clz(static_cast<int>(used));
    }
    if (lane_ == 0) shared_.warp_slots[warp_] = last;
    named_barrier(1, 128);
    last =
        max(max(shared_.warp_slots[0], shared_.warp_slots[1]),
            max(shared_.warp_slots[2], shared_.warp_slots[3]));
    if (last == 0) {  // one block without keys
      if (warp_ == 0) {
        keys_[lane_] = 0;
        keys_[32 + lane_] = 0;
        if (lane_ < 2) used_[lane_] = 0;
      }
      named_barrier(1, 128);
    }
    return last;
  }

  const AttentionCall& call_;
  Shared& shared_;
  PackedKey* keys_;  // of the row's slots
  uint32_t* used_;   // a bit a slot
  int warp_;
  int lane_;
  RingPlace<kStages> place_;
};

/// A consumer's half of the output channels of one row.
struct Values {
  float sums[128];

  /// What is left of older blocks' sums in rows r and r + 8.
  __device__ void decay(float upper, float lower) {
    if (!__any_sync(0xffffffffu, upper != 1.0f || lower != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 128; i += 4) {
      sums[i] *= upper;
      sums[i + 1] *= upper;
      sums[i + 2] *= lower;
      sums[i + 3] *= lower;
    }
  }

  /// += P · V; the first block of a row sets the sums. Waits for the products.
  __device__ void add(const uint32_t (&p)[4][4], const unsigned char* half_tile, bool first) {
    const uint64_t v = values_descriptor(shared_address(half_tile), kColumnBytes);
    hold_registers(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma_values<256>(sums, p[step], v + step * kValuesStep, !first || step);
    }
    wgmma_commit();
    wgmma_wait<0>();
    hold_registers(sums);
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
            output_vector(sums + piece * 16, side * 2, side == 0 ? upper : lower)
        );
      }
    }
  }
};

/// Softmax state of the thread's two heads.
struct Running {
  float top[2] = {kLowestTop, kLowestTop};
  float denominator[2] = {0, 0};
  float decay[2];

  /// Takes a block of logits and leaves P in `p`.
  __device__ void take(float (&s)[32], float factor, uint32_t (&p)[4][4]) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float highest = s[2 * side];
#pragma unroll
      for (int j = 0; j < 8; ++j)
        highest = fmaxf(highest, fmaxf(s[4 * j + 2 * side], s[4 * j + 2 * side + 1]));
      const float after = fmaxf(top[side], max_over_row(highest));
      decay[side] = decay_of(top[side], after, factor);
      top[side] = after;
      float sums[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          w[i] = weight_of(s[8 * group + 4 * (i / 2) + 2 * side + i % 2], after, factor);
        p[group][side] = round_pair(w[0], w[1]);
        p[group][side + 2] = round_pair(w[2], w[3]);
        sums[group] = group_sum(w[0], w[1], w[2], w[3]);
      }
      denominator[side] =
          denominator[side] * decay[side] + block_sum(sums[0], sums[1], sums[2], sums[3]);
    }
  }
};

/// Logits of a block: 64 heads by 64 keys. The halves of the channels are waited for one by one.
__device__ inline void block_logits(
    Shared& shared, const RingPlace<kStages>& place, float (&s)[32]
) {
  const uint64_t q = b_descriptor(shared_address(shared.q), 0);
  const uint64_t keys = b_descriptor(shared_address(shared.keys[place.slot]), 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    barrier_wait(&shared.full[place.slot][half], place.parity);
    if (half == 0) {
      hold_registers(s);
      wgmma_fence();
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int step = half * 16 + i;
      const int offset = (step / 4 * kColumnBytes + step % 4 * 32) / 16;
      wgmma_logits<64>(s, q + offset, keys + offset, step);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold_registers(s);
}

/// The first consumer: logits, softmax, channels 0 to 255.
__device__ inline void consume_left(const AttentionCall& call, Shared& shared, int thread) {
  const int lane = thread % 32;
  const int head = thread / 32 * 16 + lane / 4;
  const float factor = exponent_factor(call.scale);
  RingPlace<kStages> place;
  RingPlace<2> weights;
  int number = 0;
#ifdef LATE
  RingPlace<2> logits;
#endif
  for (int row = static_cast<int>(blockIdx.x); row < call.rows; row += gridDim.x, ++number) {
    barrier_wait(&shared.queries_full, number & 1);
    Values values;
    Running running;
    int blocks = 1;
    int slots = 0;
    for (int block = 0; block < blocks; ++block) {
      float s[32];
      uint32_t p[4][4];
      block_logits(shared, place, s);
#ifdef LATE
      if (block > 0) {
        warp_arrive(&shared.logits_done[logits.slot]);
        logits.advance();
      }
#endif
      if (block == 0) {
        slots = shared.slots[number % kRowsAhead];
        blocks = blocks_of(slots);
      }
      const uint64_t used = shared.used[place.slot];
      if (used != ~uint64_t{0}) {
#pragma unroll
        for (int group = 0; group < 4; ++group)
          mask_group(s + 8 * group, static_cast<uint32_t>(used >> (16 * group)), lane);
      }
      running.take(s, factor, p);
      barrier_wait(&shared.weights_empty[weights.slot], weights.parity ^ 1);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        shared.weights[weights.slot][step][thread] =
            make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]);
      }
      if (lane % 4 == 0) {
        shared.decay[weights.slot][head] = running.decay[0];
        shared.decay[weights.slot][head + 8] = running.decay[1];
      }
      warp_arrive(&shared.weights_full[weights.slot]);
      weights.advance();
      if (block > 0) values.decay(running.decay[0], running.decay[1]);
      values.add(p, shared.keys[place.slot], block == 0);
      warp_arrive(&shared.empty[place.slot][0]);
      place.advance();
    }
    float inverse[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float sink = head + side * 8 < call.heads ? call.sink[head + side * 8] : 0.0f;
      const float denominator =
          running.denominator[side] + sink_weight(sink, running.top[side], factor);
      inverse[side] = slots == 0 ? 0.0f : static_cast<float>(1 << kKeyShift) / denominator;
      if (lane % 4 == 0) shared.inverse[head + side * 8] = inverse[side];
    }
    warp_arrive(&shared.inverse_full);
    values.store(call, row, 0, inverse[0], inverse[1], thread);
  }
}

/// The second consumer: channels 256 to 511; and the queries of the next row, as soon as the
/// logits of this one are complete.
__device__ inline void consume_right(const AttentionCall& call, Shared& shared, int thread) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const Queries<4> queries(shared.q, thread / 32, thread % 32);
  const int64_t row_size = static_cast<int64_t>(call.heads) * kTileDim;
  RingPlace<kStages> place;
  RingPlace<2> weights;
  int number = 0;
#ifdef LATE
  RingPlace<2> logits;
#endif
  queries.begin(call.q + blockIdx.x * row_size, call.heads);
  queries.finish();
  warp_arrive(&shared.queries_full);
  for (int row = static_cast<int>(blockIdx.x); row < call.rows; row += gridDim.x, ++number) {
    const int next = row + static_cast<int>(gridDim.x);
    Values values;
    int blocks = 1;
    for (int block = 0; block < blocks; ++block) {
      barrier_wait(&shared.weights_full[weights.slot], weights.parity);
      if (block == 0) blocks = blocks_of(shared.slots[number % kRowsAhead]);
      if (block + 1 == blocks && next < call.rows)
        queries.begin(call.q + next * row_size, call.heads);
      uint32_t p[4][4];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint4 a = shared.weights[weights.slot][step][thread];
        p[step][0] = a.x;
        p[step][1] = a.y;
        p[step][2] = a.z;
        p[step][3] = a.w;
      }
#ifdef LATE
      if (block + 1 < blocks) {
        barrier_wait(&shared.logits_done[logits.slot], logits.parity);
        logits.advance();
      }
#endif
      const float upper = shared.decay[weights.slot][head];
      const float lower = shared.decay[weights.slot][head + 8];
      warp_arrive(&shared.weights_empty[weights.slot]);
      weights.advance();
      if (block > 0) values.decay(upper, lower);
      values.add(p, shared.keys[place.slot] + kHalfBytes, block == 0);
      warp_arrive(&shared.empty[place.slot][1]);
      place.advance();
    }
    if (next < call.rows) {
      queries.finish();
      warp_arrive(&shared.queries_full);
    }
    barrier_wait(&shared.inverse_full, number & 1);
    values.store(call, row, 1, shared.inverse[head], shared.inverse[head + 8], thread);
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
  const int thread = static_cast<int>(threadIdx.x) % 128;
  switch (threadIdx.x / 128) {
    case 0:
      lower_registers<96>();
      Producer(call, shared, reinterpret_cast<unsigned char*>(&shared + 1), thread).run();
      break;
    case 1:
      raise_registers<224>();
      consume_left(call, shared, thread);
      break;
    default: raise_registers<184>(); consume_right(call, shared, thread);
  }
}

}  // namespace di::ops::cuda::rows
