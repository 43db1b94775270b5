// Sparse attention of many rows, up to 64 heads of 512 channels: a block of four warpgroups takes
// one row after another, and of each row one block of 64 keys after another.
//
// Two producers copy records into a tile and unpack them there; it serves as K and as V. The first
// consumer computes logits and the softmax and the left half of the output channels, the second
// one the right half from the same P, which travels in registers' order through shared memory. In
// its idle time the second one resolves the next row's list and brings its queries.
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
  float inverse[kTileRows];       // of the denominator
  uint64_t used[kStages];         // bit k: slot k of the stage's block holds a key
  int warp_slots[kRowsAhead][4];  // slots up to the last used one that a warp saw, of rows
  uint64_t full[kStages][2];      // halves of a stage, by channels
  uint64_t empty[kStages][2];
  uint64_t queries_full;
  uint64_t queries_empty;  // a row's logits are complete
  uint64_t inverse_full;
  uint64_t list_full[2];
};

/// Dynamic shared memory: Shared, two lists with one bit and one PackedKey a slot, and the
/// alignment's slack.
inline int shared_bytes(const AttentionCall& call) {
  return static_cast<int>(sizeof(Shared)) + call.rounded_slots() * 16 + call.rounded_slots() / 4 +
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
  barrier_init(&shared.queries_empty, kConsumers);
  barrier_init(&shared.inverse_full, kConsumers);
  for (uint64_t& barrier : shared.list_full)
    barrier_init(&barrier, kConsumers);
  barrier_init_fence();
}

/// Named barriers between the two consumers, for each slot of P: when the first has written it, and
/// when the second has read it.
inline constexpr int kWeightsFull = 1;
inline constexpr int kWeightsEmpty = 3;

/// One arrival of a warp, after all of its lanes came here.
__device__ inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// The lists of two rows: the one under way and the next.
class RowLists {
 public:
  __device__ RowLists(const AttentionCall& call, Shared& shared, unsigned char* memory)
      : call_(call), shared_(shared), slots_(call.rounded_slots()) {
    keys_ = reinterpret_cast<PackedKey*>(memory);
    used_ = reinterpret_cast<uint64_t*>(keys_ + 2 * slots_);
  }

  /// Keys of row number `number` of this block of threads, from slot `slot` on.
  __device__ const PackedKey* keys(uint32_t number, int slot) const {
    return keys_ + number % 2 * slots_ + slot;
  }

  /// Bit k: slot k of block `block` holds a key.
  __device__ uint64_t used(uint32_t number, int block) const {
    return used_[number % 2 * (slots_ / kBlockKeys) + block];
  }

  /// Resolves the list of `row`, by one warpgroup; nobody reads that of row number - 2 any more.
  __device__ void find(int row, uint32_t number, int thread) const {
    const KeyList list(call_, row);
    auto* halves = reinterpret_cast<uint32_t*>(used_ + number % 2 * (slots_ / kBlockKeys));
    int last = 0;
    for (int first = 0; first < slots_; first += kFound * 128) {
      Key keys[kFound];
      list.find(first + thread, 128, keys);
#pragma unroll
      for (int i = 0; i < kFound; ++i) {
        const int slot = first + i * 128 + thread;
        if (slot >= slots_) break;  // the whole warp
        const PackedKey key = keys[i].packed();
        keys_[number % 2 * slots_ + slot] = key;
        prefetch_record(key);
        const uint32_t used = __ballot_sync(0xffffffffu, key != 0);
        if (thread % 32 == 0) halves[slot / 32] = used;
        if (used != 0) last = slot / 32 * 32 + 32 - __clz(static_cast<int>(used));
      }
    }
    if (thread % 32 == 0) shared_.warp_slots[number % kRowsAhead][thread / 32] = last;
    barrier_arrive(&shared_.list_full[number % 2]);
  }

  /// Slots of a row up to the last used one, once its list is there.
  __device__ int slots(uint32_t number) const {
    const int(&last)[4] = shared_.warp_slots[number % kRowsAhead];
    return max(max(last[0], last[1]), max(last[2], last[3]));
  }

 private:
  static constexpr int kFound = 5;  // slots that a thread looks up together

  const AttentionCall& call_;
  Shared& shared_;
  int slots_;  // of a row at most, in whole blocks
  PackedKey* keys_;
  uint64_t* used_;
};

/// Whether a barrier's phase has ended, without waiting; the same answer in all lanes.
__device__ inline bool warp_sees(uint64_t* barrier, uint32_t parity) {
  return __all_sync(0xffffffffu, barrier_test(barrier, parity)) != 0;
}

/// The producer warpgroups. Each warp takes eight keys of every block, one half of the channels
/// after the other. Copies run ahead of the unpacking as far as there are free halves.
class Producer {
 public:
  __device__ Producer(const AttentionCall& call, Shared& shared, const RowLists& lists, int thread)
      : rows_(call.rows),
        shared_(shared),
        lists_(lists),
        warp_(thread / 32),
        lane_(thread % 32),
        copies_(lane_) {}

  __device__ void run() {
    row_ = static_cast<int>(blockIdx.x);
    begin_row();
    uint32_t place = 0;  // of the half to unpack
    while (ahead_ > 0 || row_ < rows_) {
      if (ahead_ == 0) {
        barrier_wait(empty(), place_ / kPlaces & 1 ^ 1);
        fetch();
      }
#pragma unroll 1
      while (ahead_ <= kAhead && row_ < rows_ && warp_sees(empty(), place_ / kPlaces & 1 ^ 1))
        fetch();
      if (ahead_ == 1) {
        wait_for_copies<0>();
      } else {
        wait_for_copies<kAhead>();
      }
      __syncwarp();
      --ahead_;
      unpack_cell(
          rows_of(place) + lane_ / 8 * kColumnBytes, lane_, lane_ / 8, (formats_ >> ahead_ & 1) != 0
      );
      fence_async_proxy();
      warp_arrive(&shared_.full[0][0] + place % kPlaces);
      ++place;
    }
  }

 private:
  static constexpr uint32_t kPlaces = 2 * kStages;
  static constexpr uint32_t kAhead = 1;  // halves on their way beyond the one to unpack

  __device__ uint64_t* empty() const {
    return &shared_.empty[0][0] + place_ % kPlaces;
  }

  /// The warp's rows in a half of a stage.
  __device__ unsigned char* rows_of(uint32_t place) const {
    return shared_.keys[0] + place % kPlaces * kHalfBytes + warp_ * 8 * 128;
  }

  __device__ void begin_row() {
    barrier_wait(&shared_.list_full[number_ % 2], number_ / 2 % 2);
    keys_ = lists_.keys(number_, warp_ * 8);
    block_ = 0;
    blocks_ = blocks_of(lists_.slots(number_));
  }

  /// Starts the copies of the next half.
  __device__ void fetch() {
    const int half = static_cast<int>(place_ % 2);
    const bool fp8 = copies_.begin(shared_address(rows_of(place_)), keys_, half);
    commit_copies();
    formats_ = formats_ << 1 | (fp8 ? 1 : 0);
    ++ahead_;
    if (half == 0) {
      if (warp_ == 0 && lane_ == 0)
        shared_.used[place_ % kPlaces / 2] = lists_.used(number_, block_);
      ++place_;
      return;
    }
    ++place_;
    keys_ += kBlockKeys;
    if (++block_ == blocks_) {
      row_ += static_cast<int>(gridDim.x);
      ++number_;
      if (row_ < rows_) begin_row();
    }
  }

  int rows_;
  Shared& shared_;
  const RowLists& lists_;
  int warp_;
  int lane_;
  CellCopies<kColumnBytes> copies_;
  uint32_t place_ = 0;  // number of the next half to fetch
  int row_ = 0;         // where it belongs
  uint32_t number_ = 0;
  int block_ = 0;
  int blocks_ = 0;
  const PackedKey* keys_ = nullptr;  // the warp's of that block
  uint32_t ahead_ = 0;               // halves fetched and not unpacked
  uint32_t formats_ = 0;             // of the lane's key in them, the latest in bit 0: 1 for FP8
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

  /// Starts += P · V; the first block of a row sets the sums.
  __device__ void begin(const uint32_t (&p)[4][4], const unsigned char* half_tile, bool first) {
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

/// Softmax state of the thread's two heads.
struct Running {
  float top[2] = {kLowestTop, kLowestTop};
  float denominator[2] = {0, 0};
  float decay[2];
  float sums[2][4];  // the thread's part of the sums of p over 16 keys

  /// Takes a block of logits and leaves P in `p`; add_sums() completes it. What both heads and all
  /// groups do is kept side by side, so that latencies overlap.
  __device__ void take(const float (&s)[32], float factor, uint32_t (&p)[4][4]) {
    float after[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float highest[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) {
        const float* x = s + 8 * group + 2 * side;
        highest[group] = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[4], x[5]));
      }
      after[side] = fmaxf(fmaxf(highest[0], highest[1]), fmaxf(highest[2], highest[3]));
    }
#pragma unroll
    for (const int distance : {1, 2}) {
#pragma unroll
      for (float& highest : after)
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, distance));
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      after[side] = fmaxf(top[side], after[side]);
      decay[side] = decay_of(top[side], after[side], factor);
      top[side] = after[side];
    }
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int side = 0; side < 2; ++side)
        sums[side][group] = weigh_group(s + 8 * group, side, after[side], factor, p[group]);
    }
  }

  __device__ void add_sums() {
#pragma unroll
    for (const int distance : {1, 2}) {
#pragma unroll
      for (auto& side : sums) {
#pragma unroll
        for (float& sum : side)
          sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      }
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float(&x)[4] = sums[side];
      denominator[side] = denominator[side] * decay[side] + block_sum(x[0], x[1], x[2], x[3]);
    }
  }
};

/// Starts the products of 32 keys with one half of the channels, a chain of sums of their own.
__device__ inline void begin_chain(uint64_t q, uint64_t keys, int half, float (&chain)[16]) {
  hold_registers(chain);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int step = half * 16 + i;
    const int offset = (step / 4 * kColumnBytes + step % 4 * 32) / 16;
    wgmma_logits<32>(chain, q + offset, keys + offset, i);
  }
  wgmma_commit();
}

/// Logits of a block: 64 heads by 64 keys. The halves of the channels are waited for one by one,
/// and each is a chain of its own, because tensor cores truncate a running sum. The second chains
/// come 32 keys at a time: there are no registers for more.
__device__ inline void block_logits(
    Shared& shared, const RingPlace<kStages>& place, float (&s)[32]
) {
  const uint64_t q = b_descriptor(shared_address(shared.q), 0);
  const uint64_t tile = b_descriptor(shared_address(shared.keys[place.slot]), 0);
  const uint64_t keys[2] = {tile, tile + 32 * 128 / 16};
  float left[2][16];
  barrier_wait(&shared.full[place.slot][0], place.parity);
  begin_chain(q, keys[0], 0, left[0]);
  begin_chain(q, keys[1], 0, left[1]);
  barrier_wait(&shared.full[place.slot][1], place.parity);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float right[16];
    begin_chain(q, keys[part], 1, right);
    wgmma_wait<0>();
    hold_registers(left[part]);
    hold_registers(right);
#pragma unroll
    for (int i = 0; i < 16; ++i)
      s[16 * part + i] = left[part][i] + right[i];
  }
}

/// The first consumer: logits, softmax, channels 0 to 255.
__device__ inline void consume_left(
    const AttentionCall& call, Shared& shared, const RowLists& lists, int thread
) {
  const int lane = thread % 32;
  const int head = thread / 32 * 16 + lane / 4;
  const float factor = exponent_factor(call.scale);
  RingPlace<kStages> place;
  uint32_t turn = 0;  // blocks mixed
  uint32_t number = 0;
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
        slots = lists.slots(number);
        blocks = blocks_of(slots);
      }
      if (block + 1 == blocks) barrier_arrive(&shared.queries_empty);
      const uint64_t used = shared.used[place.slot];
      if (used != ~uint64_t{0}) {
#pragma unroll
        for (int group = 0; group < 4; ++group)
          mask_group(s + 8 * group, static_cast<uint32_t>(used >> (16 * group)), lane);
      }
      running.take(s, factor, p);
      if (turn >= 2) named_barrier(kWeightsEmpty + turn % 2, 2 * kConsumers);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        shared.weights[turn % 2][step][thread] =
            make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]);
      }
      if (lane % 4 == 0) {
        shared.decay[turn % 2][head] = running.decay[0];
        shared.decay[turn % 2][head + 8] = running.decay[1];
      }
      named_barrier_arrive(kWeightsFull + turn % 2, 2 * kConsumers);
      ++turn;
      if (block > 0) values.decay(running.decay[0], running.decay[1]);
      values.begin(p, shared.keys[place.slot], block == 0);
      running.add_sums();
      values.finish();
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

/// Asks the second-level cache for the queries of a row, by one warpgroup.
__device__ inline void prefetch_queries(const bf16* q, int heads, int thread) {
  for (int line = thread; line < heads * (kTileDim / 64); line += 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(q + line * 64));
}

/// The second consumer: channels 256 to 511; and the queries of the next row, as soon as the
/// logits of this one are complete.
__device__ inline void consume_right(
    const AttentionCall& call, Shared& shared, const RowLists& lists, int thread
) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const Queries<4> queries(shared.q, thread / 32, thread % 32);
  const int64_t row_size = static_cast<int64_t>(call.heads) * kTileDim;
  RingPlace<kStages> place;
  uint32_t turn = 0;  // blocks mixed
  uint32_t number = 0;
  queries.begin(call.q + blockIdx.x * row_size, call.heads);
  lists.find(static_cast<int>(blockIdx.x), 0, thread);
  queries.finish();
  warp_arrive(&shared.queries_full);
  for (int row = static_cast<int>(blockIdx.x); row < call.rows; row += gridDim.x, ++number) {
    const int next = row + static_cast<int>(gridDim.x);
    if (next < call.rows) {
      lists.find(next, number + 1, thread);
      prefetch_queries(call.q + next * row_size, call.heads, thread);
    } else {
      let_next_kernel_start();
    }
    Values values;
    barrier_wait(&shared.list_full[number % 2], number / 2 % 2);
    const int blocks = blocks_of(lists.slots(number));
    for (int block = 0; block < blocks; ++block) {
      if (block + 1 == blocks) {
        barrier_wait(&shared.queries_empty, number & 1);
        if (next < call.rows) queries.begin(call.q + next * row_size, call.heads);
      }
      named_barrier(kWeightsFull + turn % 2, 2 * kConsumers);
      uint32_t p[4][4];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint4 a = shared.weights[turn % 2][step][thread];
        p[step][0] = a.x;
        p[step][1] = a.y;
        p[step][2] = a.z;
        p[step][3] = a.w;
      }
      const float upper = shared.decay[turn % 2][head];
      const float lower = shared.decay[turn % 2][head + 8];
      named_barrier_arrive(kWeightsEmpty + turn % 2, 2 * kConsumers);
      ++turn;
      if (block > 0) values.decay(upper, lower);
      values.begin(p, shared.keys[place.slot] + kHalfBytes, block == 0);
      values.finish();
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
  wait_for_previous_kernels();
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const RowLists lists(call, shared, reinterpret_cast<unsigned char*>(&shared + 1));
  if (threadIdx.x < kProducers) {
    lower_registers<kProducerRegisters>();
    Producer(call, shared, lists, static_cast<int>(threadIdx.x)).run();
  } else if (threadIdx.x < kProducers + 128) {
    raise_registers<kLeftRegisters>();
    consume_left(call, shared, lists, thread);
  } else {
    raise_registers<kRightRegisters>();
    consume_right(call, shared, lists, thread);
  }
}

}  // namespace di::ops::cuda::rows
