// Index keys on their way to the tensor cores: asynchronous copies of a warp's own into a ring of
// shared memory, and their unpacking from FP4 to E4M3 registers. A value times 2^-6 is E2M1's bits
// in E4M3's fields, subnormal or not.
#pragma once

#include "ops/cuda/index_queries.cuh"

namespace di::ops::cuda {

inline constexpr int kTile = static_cast<int>(kScoreTile);
inline constexpr int kWarpKeys = kTile / 4;
inline constexpr int kChunk = 8;  ///< neighbouring keys: within a block, and within a candidate
inline constexpr int kChunkBytes = kChunk * IndexTile::kCodeBytes;
inline constexpr int kStages = 4;
inline constexpr int kStageBytes = kWarpKeys * (IndexTile::kCodeBytes + IndexTile::kGroups);

/// Copies 16 bytes into shared memory behind the thread, if `wanted`.
__device__ inline void copy_16(uint32_t to, const void* from, bool wanted = true) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global [%0], [%1], 16;\n}\n" ::"r"(to),
      "l"(from),
      "r"(static_cast<int>(wanted))
      : "memory"
  );
}
/// Closes a batch of copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `kPending` of the thread's batches are unfinished.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// What the rows of one sequence share: its blocks, the candidates of the one row that reads some,
/// and the tiles of 64 places that the furthest of them sees.
struct KeyRun {
  const int32_t* table;
  const int32_t* candidates;
  int tiles;
};

/// The entry of a run's `place`; negative: none. A candidate's last entries may not be visible yet.
template <bool kCandidates>
__device__ int entry_at(const IndexCall& call, const KeyRun& run, int place) {
  if constexpr (!kCandidates) return place;
  const int slot = place >> call.candidate_shift;
  const int block = slot < call.width ? run.candidates[slot] : -1;
  const int offset = place & ((1 << call.candidate_shift) - 1);
  return block < 0 ? -1 : (block << call.candidate_shift) + offset;
}

/// A warp's keys of a run, two chunks of every tile, through a ring of its own. A lane copies the
/// 16-byte piece lane % 4 of keys lane / 4 and lane / 4 + 8; pieces are rotated so that the reads
/// of a fragment meet no bank twice. What must be looked up for a tile, candidates and blocks, is
/// asked for while the tiles before it are copied.
template <bool kCandidates>
class KeyStream {
 public:
  /// Tiles first, first + step and on, into the ring at shared-memory address `ring`.
  __device__ KeyStream(const IndexCall& call, const KeyRun& run, int first, int step, uint32_t ring)
      : call_(call), run_(run), tile_(first), step_(step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int key = lane / 4;
    own_place_ = warp * kWarpKeys;
    codes_ = call.keys.base + lane * 16;
    scales_ = codes_ + per_block() * IndexTile::kCodeBytes;
    to_ = ring + key * IndexTile::kCodeBytes + (lane + key / 2) % 4 * 16;
    scales_to_ = ring + kWarpKeys * IndexTile::kCodeBytes + lane * 16;
    look_up_entries(first);
    look_up_blocks(first);
    look_up_entries(first + step);
  }

  /// Starts the copies of the first tiles, into all stages but the last.
  __device__ void copy_first() {
    for (int stage = 0; stage < kStages - 1; ++stage)
      copy_next(stage * kStageBytes);
  }

  /// Starts the copies of the next tile into the stage at byte `stage` of the ring; a batch even
  /// when there is none.
  __device__ void copy_next(uint32_t stage) {
    if (tile_ < run_.tiles) {
      if constexpr (kCandidates) {
        copy_chunks(stage);
      } else {
        copy_neighbours(stage);
      }
      tile_ += step_;
      look_up_blocks(tile_);
      look_up_entries(tile_ + step_);
    }
    commit_copies();
  }

 private:
  static constexpr int kLookUps = kCandidates ? 2 : 1;

  __device__ uint32_t per_block() const {
    return static_cast<uint32_t>(call_.keys.entries_per_block);
  }
  /// Bytes from the first block to the one of `chunk`.
  __device__ uint64_t block_at(int chunk) const {
    return static_cast<uint64_t>(static_cast<uint32_t>(block_[chunk])) *
           static_cast<uint32_t>(call_.keys.block_stride);
  }

  /// The first entries of the sequence stand for what is not there.
  __device__ void look_up_entries(int tile) {
#pragma unroll
    for (int chunk = 0; chunk < kLookUps; ++chunk) {
      const int place = tile * kTile + own_place_ + chunk * kChunk;
      next_entry_[chunk] =
          tile < run_.tiles ? max(entry_at<kCandidates>(call_, run_, place), 0) : 0;
    }
  }
  __device__ void look_up_blocks(int tile) {
#pragma unroll
    for (int chunk = 0; chunk < kLookUps; ++chunk) {
      in_block_[chunk] = static_cast<uint32_t>(next_entry_[chunk]) & (per_block() - 1);
      block_[chunk] = tile < run_.tiles ? run_.table[next_entry_[chunk] >> call_.block_shift] : 0;
    }
  }

  __device__ void copy_neighbours(uint32_t stage) const {
    const std::byte* codes = codes_ + block_at(0) + in_block_[0] * IndexTile::kCodeBytes;
    copy_16(to_ + stage, codes);
    copy_16(to_ + stage + kChunkBytes, codes + kChunkBytes);
    const std::byte* scales = scales_ + block_at(0) + in_block_[0] * IndexTile::kGroups;
    copy_16(scales_to_ + stage, scales, threadIdx.x % 32 < 4);
  }

  __device__ void copy_chunks(uint32_t stage) const {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      const std::byte* codes = codes_ + block_at(chunk) + in_block_[chunk] * IndexTile::kCodeBytes;
      copy_16(to_ + stage + chunk * kChunkBytes, codes);
    }
    // Lanes 0 and 1 take the scales of the first chunk, 2 and 3 of the second.
    const bool second = threadIdx.x % 4 >= 2;
    const std::byte* scales =
        second ? scales_ + block_at(1) + in_block_[1] * IndexTile::kGroups - 2 * 16
               : scales_ + block_at(0) + in_block_[0] * IndexTile::kGroups;
    copy_16(scales_to_ + stage, scales, threadIdx.x % 32 < 4);
  }

  const IndexCall& call_;
  const KeyRun& run_;
  int tile_;  ///< the next
  int step_;
  int own_place_;           ///< of the warp, in a tile
  const std::byte* codes_;  ///< of this lane, in the first block
  const std::byte* scales_;
  uint32_t to_;  ///< of this lane, in the first stage
  uint32_t scales_to_;
  int next_entry_[kLookUps];     ///< of the tile after the next
  uint32_t in_block_[kLookUps];  ///< of the next tile
  int32_t block_[kLookUps];
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
