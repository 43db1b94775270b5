// Index keys on their way to the tensor cores: asynchronous copies of a warp's own into a ring of
// shared memory, and their unpacking from FP4 to E4M3 registers. A value times 2^-6 is E2M1's bits
// in E4M3's fields, subnormal or not.
#pragma once

#include "ops/cuda/index_queries.cuh"

namespace di::ops::cuda {

inline constexpr int kTile = static_cast<int>(kScoreTile);
inline constexpr int kWarpKeys = kTile / 4;
inline constexpr int kStages = 4;
inline constexpr int kStageBytes = kWarpKeys * (IndexTile::kCodeBytes + IndexTile::kGroups);

/// Copies 16 or 4 bytes into shared memory behind the thread, if `wanted`.
__device__ inline void copy_16(uint32_t to, const void* from, bool wanted = true) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p cp.async.cg.shared.global [%0], [%1], "
      "16;\n}\n" ::"r"(to),
      "l"(from),
      "r"(static_cast<int>(wanted))
      : "memory"
  );
}
__device__ inline void copy_4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/// The keys of one sequence as a warp needs them: 16 of every tile of 64 places, through a ring of
/// its own. A lane takes the 16-byte piece lane % 4 of keys lane / 4 and lane / 4 + 8; pieces are
/// rotated so that the reads of a fragment meet no bank twice. The block of a tile is looked up one
/// step before its copies start.
template <bool kCandidates>
class KeyStream {
 public:
  __device__ KeyStream(
      const IndexCall& call,
      const int32_t* table,
      const int32_t* candidates,
      int visible,
      uint32_t ring
  )
      : call_(call),
        table_(table),
        candidates_(candidates),
        visible_(visible),
        shift_(call.block_shift) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int key = lane / 4;
    to_ = ring + key * IndexTile::kCodeBytes + (lane + key / 2) % 4 * 16;
    scales_to_ =
        ring + kWarpKeys * IndexTile::kCodeBytes + lane * (kCandidates ? IndexTile::kGroups : 16);
    codes_at_ = static_cast<uint32_t>(warp * kWarpKeys * IndexTile::kCodeBytes + lane * 16);
    scales_at_ = static_cast<uint32_t>(warp * kWarpKeys * IndexTile::kGroups + lane * 16);
  }

  /// The block of `tile`, for start(). Tiles that are not there have none.
  __device__ int32_t block(int tile, int tiles) const {
    if (kCandidates || tile >= tiles) return 0;
    return table_[static_cast<uint32_t>(tile) >> (shift_ - 6)];
  }

  /// Starts the copies of `tile` into the stage at byte `stage` of the ring; counts as a batch even
  /// when the tile is not there.
  __device__ void start(int tile, int tiles, int32_t block, uint32_t stage) const {
    if (tile < tiles) {
      if constexpr (kCandidates) {
        const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
        gather(tile * kTile + warp * kWarpKeys, stage);
      } else {
        stream(static_cast<uint32_t>(tile * kTile) & (per_block() - 1), block, stage);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  /// The entry at `place`; negative: none.
  __device__ int entry(int place) const {
    if constexpr (!kCandidates) return place;
    const int slot = place / call_.block_size;
    const int block = slot < call_.width ? candidates_[slot] : -1;
    const int entry = block * call_.block_size + place % call_.block_size;
    return block >= 0 && entry < visible_ ? entry : -1;
  }

 private:
  __device__ uint32_t per_block() const {
    return static_cast<uint32_t>(call_.keys.entries_per_block);
  }

  /// Sixteen neighbours of the tile from place `at` of a block on.
  __device__ void stream(uint32_t at, int32_t block, uint32_t stage) const {
    const std::byte* section = call_.keys.base + static_cast<uint64_t>(static_cast<uint32_t>(block)
                                                 ) * static_cast<uint32_t>(call_.keys.block_stride);
    const std::byte* codes = section + (at * IndexTile::kCodeBytes + codes_at_);
    copy_16(to_ + stage, codes);
    copy_16(to_ + stage + 8 * IndexTile::kCodeBytes, codes + 8 * IndexTile::kCodeBytes);
    const std::byte* scales =
        section + (per_block() * IndexTile::kCodeBytes + at * IndexTile::kGroups + scales_at_);
    copy_16(scales_to_ + stage, scales, threadIdx.x % 32 < kWarpKeys * IndexTile::kGroups / 16);
  }

  /// Sixteen entries wherever the candidates lie; the first one stands for places without an entry.
  __device__ void gather(int place, uint32_t offset) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int piece = lane % 4 * 16;
    copy_16(to_ + offset, key(place + lane / 4, IndexTile::kCodeBytes) + piece);
    copy_16(
        to_ + offset + 8 * IndexTile::kCodeBytes,
        key(place + lane / 4 + 8, IndexTile::kCodeBytes) + piece
    );
    if (lane < kWarpKeys) {
      copy_4(
          scales_to_ + offset,
          key(place + lane, IndexTile::kGroups) + per_block() * IndexTile::kCodeBytes
      );
    }
  }
  /// The entry at `place` in a section of `bytes` an entry.
  __device__ const std::byte* key(int place, uint32_t bytes) const {
    const int j = max(entry(place), 0);
    return call_.keys.base + table_[j >> shift_] * call_.keys.block_stride +
           (static_cast<uint32_t>(j) & (per_block() - 1)) * bytes;
  }

  const IndexCall& call_;
  const int32_t* table_;
  const int32_t* candidates_;
  int visible_;
  int shift_;    ///< of entries a block
  uint32_t to_;  ///< of this lane, in the first stage
  uint32_t scales_to_;
  uint32_t codes_at_;  ///< of this lane, in a block of a tile of its own
  uint32_t scales_at_;
};

/// One warp's part of a tile in registers: keys lane / 4 and lane / 4 + 8.
struct KeyFragment {
  uint32_t codes[IndexTile::kGroups][4];  // E4M3 of value · 2^-6
  float scales[IndexTile::kGroups][2];

  __device__ explicit KeyFragment(uint32_t stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int key = lane / 4;
#pragma unroll
    for (int group = 0; group < IndexTile::kGroups; ++group) {
      const uint32_t at =
          stage + key * IndexTile::kCodeBytes + (group + key / 2) % 4 * 16 + lane % 4 * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t q = load(at + half * 8 * IndexTile::kCodeBytes);
        codes[group][half] = (q << 4 & 0x80808080u) | (q << 2 & 0x1c1c1c1cu);
        codes[group][2 + half] = (q & 0x80808080u) | (q >> 2 & 0x1c1c1c1cu);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t q =
          load(stage + kWarpKeys * IndexTile::kCodeBytes + (key + 8 * half) * IndexTile::kGroups);
      scales[0][half] = __uint_as_float(q << 23 & 0x7f800000u);
      scales[1][half] = __uint_as_float(q << 15 & 0x7f800000u);
      scales[2][half] = __uint_as_float(q << 7 & 0x7f800000u);
      scales[3][half] = __uint_as_float(q >> 1 & 0x7f800000u);
    }
  }

 private:
  __device__ static uint32_t load(uint32_t address) {
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
  }
};

}  // namespace di::ops::cuda
