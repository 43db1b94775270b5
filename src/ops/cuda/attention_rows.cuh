// Sparse attention of many rows, up to 64 heads of 512 channels: a block of four warpgroups takes
// one row after another, and of each row one block of 64 keys after another.
//
// Two producers copy records into a tile and unpack them there; it serves as K and as V. The first
// consumer computes logits and the softmax and the left half of the output channels, the second
// one the right half from the same P. P and the decay travel in registers' order through shared
// memory.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::rows {

inline constexpr int kProducers = 256;  // threads
inline constexpr int kProducerWarps = kProducers / 32;
inline constexpr int kConsumers = 128;  // threads of one half, each of which arrives by itself
inline constexpr int kThreads = kProducers + 2 * kConsumers;
inline constexpr int kProducerRegisters = 56;  // together 512 for each of 128 threads
inline constexpr int kLeftRegisters = 208;
inline constexpr int kRightRegisters = 192;
inline constexpr int kStages = 2;
inline constexpr int kHalfBytes = kTileBytes / 2;
inline constexpr int kColumnBytes = kTileBytes / 8;
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
  int warp_slots[kProducerWarps];
  uint64_t full[kStages][2];  // halves of a stage, by channels
  uint64_t empty[kStages][2];
  uint64_t weights_full[2];
  uint64_t weights_empty[2];
  uint64_t queries_full;
  uint64_t inverse_full;
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
      barrier_init(&shared.full[stage][half], kProducerWarps);
      barrier_init(&shared.empty[stage][half], 4);
    }
  }
  barrier_init(&shared.queries_full, 4);
  barrier_init(&shared.inverse_full, kConsumers);
  for (int i = 0; i < 2; ++i) {
    barrier_init(&shared.weights_full[i], kConsumers);
    barrier_init(&shared.weights_empty[i], kConsumers);
  }
  barrier_init_fence();
}

/// One arrival of a warp, after all of its lanes came here.
__device__ inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// The producer warpgroups. Each warp takes eight keys of every block.
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
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        const PackedKey key = keys_[block * kBlockKeys + warp_ * 8 + lane_ % 8];
        unsigned char* rows = shared_.keys[place_.slot] + warp_ * 8 * 128;
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          barrier_wait(&shared_.empty[place_.slot][half], place_.parity ^ 1);
          fetch_cells(rows + half * kHalfBytes, kColumnBytes, key, half * 4, lane_);
          commit_copies();
        }
        if (warp_ == 0 && lane_ == 0) {
          shared_.used[place_.slot] = uint64_t{used_[2 * block]} | uint64_t{used_[2 * block + 1]}
                                                                       << 32;
        }
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          if (half == 0) {
            wait_for_copies<1>();
          } else {
            wait_for_copies<0>();
          }
          __syncwarp();
          unpack_cell(
              rows + half * kHalfBytes + lane_ / 8 * kColumnBytes, lane_ % 8, lane_ / 8, is_fp8(key)
          );
          fence_async_proxy();
          warp_arrive(&shared_.full[place_.slot][half]);
        }
        place_.advance();
      }
    }
  }

 private:
  static constexpr int kFound = 3;  // slots that a thread looks up together

  /// Resolves the row's list; slots up to the last used one.
  __device__ int list_keys(int row) {
    const KeyList list(call_, row);
    named_barrier(1, kProducers);  // nobody reads the former list any more
    int last = 0;
    const int rounded = (list.slots() + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
    for (int first = 0; first < rounded; first += kFound * kProducers) {
      Key keys[kFound];
      list.find(first + warp_ * 32 + lane_, kProducers, keys);
#pragma unroll
      for (int i = 0; i < kFound; ++i) {
        const int slot = first + i * kProducers + warp_ * 32 + lane_;
        if (slot >= rounded) break;  // the whole warp
        const PackedKey key = keys[i].packed();
        keys_[slot] = key;
        prefetch_record(key);
        const uint32_t used = __ballot_sync(0xffffffffu, key != 0);
        if (lane_ == 0) used_[slot / 32] = used;
        if (used != 0) last = slot / 32 * 32 + 32 - __clz(static_cast<int>(used));
      }
    }
    if (lane_ == 0) shared_.warp_slots[warp_] = last;
    named_barrier(1, kProducers);
#pragma unroll
    for (int warp = 0; warp < kProducerWarps; ++warp)
      last = max(last, shared_.warp_slots[warp]);
    if (last == 0) {  // one block without keys
      if (warp_ == 0) {
        keys_[lane_] = 0;
        keys_[32 + lane_] = 0;
        if (lane_ < 2) used_[lane_] = 0;
      }
      named_barrier(1, kProducers);
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

/// A consumer's half of the output channels of one row, in two quarters: one product of 256 columns
/// would need more registers than a thread has when the kernel starts.
struct Values {
  float sums[2][64];

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

  /// += P · V; the first block of a row sets the sums. Waits for the products.
  __device__ void add(const uint32_t (&p)[4][4], const unsigned char* half_tile, bool first) {
    const uint64_t v = values_descriptor(shared_address(half_tile), kColumnBytes);
    hold_registers(sums[0]);
    hold_registers(sums[1]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int quarter = 0; quarter < 2; ++quarter) {
        const uint64_t columns = v + quarter * (2 * kColumnBytes / 16) + step * kValuesStep;
        wgmma_values<128>(sums[quarter], p[step], columns, !first || step);
      }
    }
    wgmma_commit();
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
      barrier_arrive(&shared.weights_full[weights.slot]);
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
    barrier_arrive(&shared.inverse_full);
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
      const float upper = shared.decay[weights.slot][head];
      const float lower = shared.decay[weights.slot][head + 8];
      barrier_arrive(&shared.weights_empty[weights.slot]);
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
  if (threadIdx.x < kProducers) {
    lower_registers<kProducerRegisters>();
    Producer producer(
        call, shared, reinterpret_cast<unsigned char*>(&shared + 1), static_cast<int>(threadIdx.x)
    );
    producer.run();
  } else if (threadIdx.x < kProducers + 128) {
    raise_registers<kLeftRegisters>();
    consume_left(call, shared, thread);
  } else {
    raise_registers<kRightRegisters>();
    consume_right(call, shared, thread);
  }
}

}  // namespace di::ops::cuda::rows
