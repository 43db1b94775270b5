// From records to tiles in attention_rows.cuh: records come into registers a round ahead of their
// turn and leave them as rows of a tile, so that a tile is taken only while it is filled and used.
#pragma once

#include "ops/cuda/attention_rows_shared.cuh"

namespace di::ops::cuda::rows {

inline constexpr int kGroupBytes = 8 * 128;  // rows of eight keys in a column block

/// What an unused slot reads as: a record of zeros.
__device__ constexpr uint4 kNoRecord[(kTileDim + kTileDim / 32) / 16] = {};

// Volatile, so that loads stay where they are started: a round before their use.
__device__ inline uint4 load_codes(const uint8_t* from) {
  uint4 x;
  asm volatile("ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}
__device__ inline uint32_t load_scales(const uint8_t* from) {
  uint32_t x;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(x) : "l"(from));
  return x;
}

/// What a warp loads before it unpacks: of sixteen keys, two groups of eight, all channels, or one
/// half of them where any key is FP8, since a lane has no registers for more.
struct Round {
  const uint8_t* records[2];  // of the lane's key in each group
  bool fp8[2];                // its format
  bool halves;                // any is FP8, so there is a round for each half
  int half;                   // which it is
};

/// The producing warpgroup. Each warp unpacks sixteen keys of every block; a lane takes every
/// fourth piece of one key of each group. As soon as two pieces have left its registers, the loads
/// of those of the next round come there.
///
/// There is no fence between the stores and the tensor cores' reads, for it would wait for the
/// loads under way: the weighers have it, behind the barrier.
class Producer {
 public:
  __device__ Producer(const AttentionCall& call, Shared& shared, const RowLists& lists, int thread)
      : rows_(call.rows),
        shared_(shared),
        lists_(lists),
        warp_(thread / 32),
        key_(thread % 8),
        piece_(thread % 32 / 8),
        row_(static_cast<int>(blockIdx.x)) {}

  __device__ void run() {
    RingPlace<kStages> place;
    enter_row();
    Round now = round_of_block();
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int group = 0; group < 2; ++group)
        load(now, part, group);
    }
    for (bool more = true; more;) {
      Round next = now;
      more = find_next(next);  // else this round's loads are done again, in vain
      unsigned char* tile = shared_.keys[place.slot] + warp_ * 2 * kGroupBytes;
      barrier_wait(&shared_.empty[place.slot][now.half], place.parity ^ 1);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if (part == 1 && !now.halves) {
          warp_arrive(&shared_.full[place.slot][0]);
          barrier_wait(&shared_.empty[place.slot][1], place.parity ^ 1);
        }
#pragma unroll
        for (int group = 0; group < 2; ++group) {
          unpack(now, part, group, tile + group * kGroupBytes);
          load(next, part, group);
        }
      }
      if (now.halves && now.half == 0) {
        warp_arrive(&shared_.full[place.slot][0]);
      } else {
        warp_arrive(&shared_.full[place.slot][1]);
        place.advance();
      }
      now = next;
    }
  }

 private:
  __device__ void enter_row() {
    barrier_wait(&shared_.list_full[number_ % 2], number_ / 2 % 2);
    blocks_ = blocks_of(lists_.slots(number_));
    block_ = 0;
  }

  /// Turns a round into the one behind it. False: there is none.
  __device__ bool find_next(Round& round) {
    if (round.halves && round.half == 0) {
      round.half = 1;
      return true;
    }
    if (++block_ == blocks_) {
      row_ += static_cast<int>(gridDim.x);
      if (row_ >= rows_) return false;
      ++number_;
      enter_row();
    }
    round = round_of_block();
    return true;
  }

  __device__ Round round_of_block() const {
    Round round;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const PackedKey key =
          *lists_.keys(number_, block_ * kBlockKeys + warp_ * 16 + group * 8 + key_);
      round.fp8[group] = is_fp8(key);
      round.records[group] =
          key == 0 ? reinterpret_cast<const uint8_t*>(kNoRecord) : record_of(key);
    }
    round.halves = __any_sync(0xffffffffu, round.fp8[0] || round.fp8[1]);
    round.half = 0;
    return round;
  }

  /// Starts the loads of two pieces of FP4, or one where the round is a half.
  __device__ void load(const Round& round, int part, int group) {
    const uint8_t* record = round.records[group];
    const uint8_t* codes;
    const uint8_t* scales;
    int next_codes = 0;
    int next_scales = 0;
    if (!round.halves) {
      codes = record + part * 128 + piece_ * 16;
      scales = record + kTileDim / 2 + part * 16 + piece_ * 2;
      next_codes = 64;
      next_scales = 8;
    } else {
      const bool fp8 = round.fp8[group];
      const int piece = round.half * 8 + part * 4 + piece_;
      codes = record + piece * (fp8 ? 32 : 16);
      scales = record + (fp8 ? kTileDim + piece / 2 * 2 : kTileDim / 2 + piece * 2);
      next_codes = fp8 ? 16 : 0;
    }
    codes_[group][part * 2] = load_codes(codes);
    codes_[group][part * 2 + 1] = load_codes(codes + next_codes);
    scales_[group][part * 2] = load_scales(scales);
    scales_[group][part * 2 + 1] = load_scales(scales + next_scales);
  }

  /// Unpacks what load() has brought.
  __device__ void unpack(const Round& round, int part, int group, unsigned char* rows) const {
    const uint4* codes = codes_[group] + part * 2;
    const uint32_t* scales = scales_[group] + part * 2;
    unsigned char* column = rows + piece_ / 2 * kColumnBytes;
    uint4 chunks[4];
    if (!round.halves) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        unpack_piece_fp4(codes[i], scales[i], chunks);
        store_piece(column + (part * 2 + i) * 2 * kColumnBytes, key_, piece_ % 2, chunks);
      }
      return;
    }
    if (round.fp8[group]) {
      const uint32_t scale = scales[0] >> (piece_ % 2 * 8) & 0xff;
      unpack_piece_fp8(codes[0], codes[1], scale, chunks);
    } else {
      unpack_piece_fp4(codes[0], scales[0], chunks);
    }
    store_piece(column + (round.half * 4 + part * 2) * kColumnBytes, key_, piece_ % 2, chunks);
  }

  int rows_;
  Shared& shared_;
  const RowLists& lists_;
  int warp_;
  int key_;    // of eight
  int piece_;  // the first of the lane's
  int row_;    // of the block to load next
  uint32_t number_ = 0;
  int block_ = 0;
  int blocks_ = 0;
  uint4 codes_[2][4];
  uint32_t scales_[2][4];
};

}  // namespace di::ops::cuda::rows
