// From records to tiles in attention_rows.cuh: who starts the copies, and who unpacks them. A
// record is copied as it is into the tile that it will fill.
#pragma once

#include "ops/cuda/attention_rows_shared.cuh"

namespace di::ops::cuda::rows {

inline constexpr int kGroupBytes = 8 * 128;  // rows of eight keys in a column block
inline constexpr int kFp4Bytes = kTileDim / 2 + kTileDim / 16;
inline constexpr int kFp8Bytes = kTileDim + kTileDim / 32;

/// Where the record of key number `key` of eight lies from their rows on: in the column block of
/// that number, sixteen bytes further for each, so that the same bytes of all of them lie in
/// different banks.
__device__ inline int raw_offset(int key) {
  return key * (kColumnBytes + 16);
}

/// Starts the copies of records into tiles, by one warp of each mixing warpgroup: each brings those
/// that lie in its own half of the columns, so that it waits for nobody but itself.
class Fetcher {
 public:
  __device__ Fetcher(
      const AttentionCall& call, Shared& shared, const RowLists& lists, int half, int thread
  )
      : rows_(call.rows),
        shared_(shared),
        lists_(lists),
        key_(thread / 16 * 8 + half * 4 + thread / 4 % 4),
        part_(thread % 4),
        to_(thread / 16 * kGroupBytes + raw_offset(key_ % 8)),
        row_(static_cast<int>(blockIdx.x)) {}

  /// One more stage is free.
  __device__ void free_stage() { ++free_; }

  /// Fills free stages, as far as the lists of rows up to `known` reach. All threads keep count;
  /// `copies` says whether this warp does the work.
  __device__ void fill(uint32_t known) {
    while (free_ > 0 && row_ < rows_ && number_ <= known) {
      if (block_ == 0) {
        barrier_wait(&shared_.list_full[number_ % 2], number_ / 2 % 2);
        blocks_ = blocks_of(lists_.slots(number_));
      }
      copy(*lists_.keys(number_, block_ * kBlockKeys + key_));
      --free_;
      stage_ ^= 1;
      if (++block_ == blocks_) {
        block_ = 0;
        row_ += static_cast<int>(gridDim.x);
        ++number_;
      }
    }
  }

 private:
  __device__ void copy(PackedKey key) const {
    const uint32_t to = shared_address(shared_.keys[stage_]) + to_ + part_ * 16;
    const uint8_t* record = record_of(key) + part_ * 16;
    if (is_fp8(key)) {
      copy_record<kFp8Bytes>(to, record);
    } else if (key != 0) {
      copy_record<kFp4Bytes>(to, record);
    }
    barrier_arrive_after_copies(&shared_.raw[stage_]);
  }
  template <int kBytes>
  __device__ void copy_record(uint32_t to, const uint8_t* record) const {
#pragma unroll
    for (int i = 0; i < kBytes / 64; ++i)
      copy_async<16>(to + i * 64, record + i * 64, true);
    if (part_ < kBytes % 64 / 16)
      copy_async<16>(to + kBytes / 64 * 64, record + kBytes / 64 * 64, true);
  }

  int rows_;
  Shared& shared_;
  const RowLists& lists_;
  int key_;
  int part_;
  int to_;
  int free_ = kStages;
  int stage_ = 0;
  int row_;  // of the next block to bring
  uint32_t number_ = 0;
  int block_ = 0;
  int blocks_ = 0;
};

/// The producing warpgroup. Each warp unpacks sixteen keys of every block, eight by eight, where
/// they lie: it alone reads what it overwrites.
class Producer {
 public:
  __device__ Producer(const AttentionCall& call, Shared& shared, const RowLists& lists, int thread)
      : rows_(call.rows),
        shared_(shared),
        lists_(lists),
        warp_(thread / 32),
        lane_(thread % 32),
        key_(lane_ % 8),
        quarter_(lane_ / 8) {}

  __device__ void run() const {
    RingPlace<kStages> place;
    uint32_t number = 0;
    for (int row = static_cast<int>(blockIdx.x); row < rows_; row += gridDim.x, ++number) {
      barrier_wait(&shared_.list_full[number % 2], number / 2 % 2);
      const PackedKey* keys = lists_.keys(number, warp_ * 16 + lane_ % 16);
      const int blocks = blocks_of(lists_.slots(number));
      for (int block = 0; block < blocks; ++block, keys += kBlockKeys) {
        const PackedKey key = *keys;
        const uint32_t fp8 = __ballot_sync(0xffffffffu, is_fp8(key)) & 0xffffu;
        const uint32_t unused = __ballot_sync(0xffffffffu, key == 0) << 16;
        unsigned char* rows = shared_.keys[place.slot] + warp_ * kGroupBytes * 2;
        barrier_wait(&shared_.raw[place.slot], place.parity);
        if ((fp8 | unused) == 0) {
          unpack_fp4(rows, &shared_.full[place.slot][0]);
        } else {
          unpack_any(rows, fp8 | unused);
          fence_async_proxy();
          warp_arrive(&shared_.full[place.slot][0]);
        }
        fence_async_proxy();
        warp_arrive(&shared_.full[place.slot][1]);
        place.advance();
      }
    }
  }

 private:
  /// What a lane unpacks of a record: 64 channels of each half with their four scales.
  struct RawFp4 {
    uint4 codes[2][2];
    uint32_t scales[2];
  };
  __device__ RawFp4 read_fp4(const unsigned char* rows) const {
    const unsigned char* record = rows + raw_offset(key_);
    RawFp4 raw;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned char* codes = record + half * 128 + quarter_ * 32;
      raw.codes[half][0] = *reinterpret_cast<const uint4*>(codes);
      raw.codes[half][1] = *reinterpret_cast<const uint4*>(codes + 16);
      raw.scales[half] =
          *reinterpret_cast<const uint32_t*>(record + kTileDim / 2 + half * 16 + quarter_ * 4);
    }
    return raw;
  }
  __device__ void store_fp4(const RawFp4& raw, int half, unsigned char* rows) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint4 chunks[4];
      unpack_piece_fp4(raw.codes[half][i], raw.scales[half] >> (16 * i), chunks);
      store_piece(rows + (half * 4 + quarter_) * kColumnBytes, key_, i, chunks);
    }
  }

  /// Unpacks sixteen keys of FP4. `left` hears of the left half.
  __device__ void unpack_fp4(unsigned char* rows, uint64_t* left) const {
    const RawFp4 first = read_fp4(rows);
    const RawFp4 second = read_fp4(rows + kGroupBytes);
    __syncwarp();
    store_fp4(first, 0, rows);
    store_fp4(second, 0, rows + kGroupBytes);
    fence_async_proxy();
    warp_arrive(left);
    store_fp4(first, 1, rows);
    store_fp4(second, 1, rows + kGroupBytes);
  }

  /// Unpacks sixteen keys of any kind. `kinds`: bit k says that key k is FP8, bit k + 16 that it is
  /// unused.
  __device__ void unpack_any(unsigned char* rows, uint32_t kinds) const {
#pragma unroll 1
    for (int group = 0; group < 2; ++group, rows += kGroupBytes) {
      const bool fp8 = (kinds >> (group * 8 + key_) & 1) != 0;
      const bool unused = (kinds >> (group * 8 + key_ + 16) & 1) != 0;
      const unsigned char* record = rows + raw_offset(key_);
      uint4 codes[2][4];
      uint32_t scales[2] = {0, 0};
#pragma unroll
      for (auto& half : codes) {
#pragma unroll
        for (uint4& x : half)
          x = make_uint4(0, 0, 0, 0);
      }
      if (fp8) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            codes[half][i] =
                *reinterpret_cast<const uint4*>(record + half * 256 + quarter_ * 64 + i * 16);
          }
          scales[half] =
              *reinterpret_cast<const uint16_t*>(record + kTileDim + half * 8 + quarter_ * 2);
        }
      } else if (!unused) {
        const RawFp4 raw = read_fp4(rows);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          codes[half][0] = raw.codes[half][0];
          codes[half][1] = raw.codes[half][1];
          scales[half] = raw.scales[half];
        }
      }
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (fp8) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint4 chunks[4];
            unpack_piece_fp8(
                codes[half][2 * i], codes[half][2 * i + 1], scales[half] >> (8 * i) & 0xff, chunks
            );
            store_piece(rows + (half * 4 + quarter_) * kColumnBytes, key_, i, chunks);
          }
        } else {
          store_fp4(
              {{{codes[0][0], codes[0][1]}, {codes[1][0], codes[1][1]}}, {scales[0], scales[1]}},
              half,
              rows
          );
        }
      }
      __syncwarp();
    }
  }

  int rows_;
  Shared& shared_;
  const RowLists& lists_;
  int warp_;
  int lane_;
  int key_;      // of eight, whose
  int quarter_;  // the lane unpacks
};

}  // namespace di::ops::cuda::rows
