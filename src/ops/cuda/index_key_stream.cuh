// Index keys on their way to the tensor cores: asynchronous copies of a warp's own into a ring of
// shared memory, and their unpacking from FP4 to E4M3 registers. A value times 2^-6 is E2M1's bits
// in E4M3's fields, subnormal or not.
#pragma once

#include "ops/cuda/index_queries.cuh"

namespace di::ops::cuda {

inline constexpr int kChunk = 8;  ///< neighbouring keys: within a block, and within a candidate
inline constexpr int kChunkBytes = kChunk * IndexTile::kCodeBytes;
inline constexpr int kStages = 4;

/// A warpgroup's keys at a time, kHalves for each row of a product.
template <int kHalves>
struct KeyTile {
  static constexpr int kWarpKeys = 16 * kHalves;
  static constexpr int kKeys = 4 * kWarpKeys;
  static constexpr int kStageBytes = kWarpKeys * (IndexTile::kCodeBytes + IndexTile::kGroups);
};

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
/// and the places that the furthest of them sees.
struct KeyRun {
  const int32_t* table;
  const int32_t* candidates;
  int places;
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

/// A warp's keys of a run, neighbours or two chunks of every tile, through a ring of its own. A
/// lane copies the 16-byte piece lane % 4 of keys lane / 4, lane / 4 + 8 and so on; pieces are
/// rotated so that the reads of a fragment meet no bank twice. What must be looked up for a tile,
/// candidates and blocks, is asked for while the tiles before it are copied.
template <bool kCandidates, int kHalves>
class KeyStream {
 public:
  using Tile = KeyTile<kHalves>;
  static_assert(!kCandidates || kHalves == 1);

  /// Tiles first, first + step and on, into the ring at shared-memory address `ring`.
  __device__ KeyStream(const IndexCall& call, const KeyRun& run, int first, int step, uint32_t ring)
      : call_(call), run_(run), tile_(first), step_(step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int key = lane / 4;
    own_place_ = warp * Tile::kWarpKeys;
    to_ = ring + key * IndexTile::kCodeBytes + (lane + key / 2) % 4 * 16;
    scales_to_ = ring + Tile::kWarpKeys * IndexTile::kCodeBytes + lane * 16;
    look_up_entries(first);
    look_up_blocks(first);
    look_up_entries(first + step);
  }

  /// Starts the copies of the first tiles, into all stages but the last.
  __device__ void copy_first() {
    for (int stage = 0; stage < kStages - 1; ++stage)
      copy_next(stage * Tile::kStageBytes);
  }

  /// Starts the copies of the next tile into the stage at byte `stage` of the ring; a batch even
  /// when there is none.
  __device__ void copy_next(uint32_t stage) {
    if (tile_ * Tile::kKeys < run_.places) {
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
  /// Where this lane begins to copy codes, or scales, from the block of `chunk`.
  __device__ const std::byte* codes_of(int chunk) const {
    return block_at(chunk) + (in_block_[chunk] * IndexTile::kCodeBytes + own_piece());
  }
  __device__ const std::byte* scales_of(int chunk) const {
    return block_at(chunk) + (per_block() * IndexTile::kCodeBytes +
                              in_block_[chunk] * IndexTile::kGroups + own_piece());
  }
  __device__ static uint32_t own_piece() { return threadIdx.x % 32 * 16; }
  __device__ const std::byte* block_at(int chunk) const {
    return call_.keys.base + static_cast<uint64_t>(static_cast<uint32_t>(block_[chunk])) *
                                 static_cast<uint32_t>(call_.keys.block_stride);
  }

  /// The first entries of the sequence stand for what is not there.
  __device__ void look_up_entries(int tile) {
#pragma unroll
    for (int chunk = 0; chunk < kLookUps; ++chunk) {
      const int place = tile * Tile::kKeys + own_place_ + chunk * kChunk;
      next_entry_[chunk] =
          place < run_.places ? max(entry_at<kCandidates>(call_, run_, place), 0) : 0;
    }
  }
  __device__ void look_up_blocks(int tile) {
#pragma unroll
    for (int chunk = 0; chunk < kLookUps; ++chunk) {
      in_block_[chunk] = static_cast<uint32_t>(next_entry_[chunk]) & (per_block() - 1);
      block_[chunk] = tile * Tile::kKeys < run_.places
                          ? run_.table[next_entry_[chunk] >> call_.block_shift]
                          : 0;
    }
  }

  __device__ void copy_neighbours(uint32_t stage) const {
    const std::byte* codes = codes_of(0);
#pragma unroll
    for (int chunk = 0; chunk < 2 * kHalves; ++chunk)
      copy_16(to_ + stage + chunk * kChunkBytes, codes + chunk * kChunkBytes);
    copy_16(scales_to_ + stage, scales_of(0), threadIdx.x % 32 < 4 * kHalves);
  }

  __device__ void copy_chunks(uint32_t stage) const {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk)
      copy_16(to_ + stage + chunk * kChunkBytes, codes_of(chunk));
    // Lanes 0 and 1 take the scales of the first chunk, 2 and 3 of the second.
    const bool second = threadIdx.x % 4 >= 2;
    const std::byte* scales = second ? scales_of(1) - 2 * 16 : scales_of(0);
    copy_16(scales_to_ + stage, scales, threadIdx.x % 32 < 4);
  }

  const IndexCall& call_;
  const KeyRun& run_;
  int tile_;  ///< the next
  int step_;
  int own_place_;  ///< of the warp, in a tile
  uint32_t to_;    ///< of this lane, in the first stage
  uint32_t scales_to_;
  int next_entry_[kLookUps];     ///< of the tile after the next
  uint32_t in_block_[kLookUps];  ///< of the next tile
  int32_t block_[kLookUps];
};

/// One warp's part of a half of a tile in registers: keys lane / 4 and lane / 4 + 8 of sixteen.
struct KeyFragment {
  uint32_t codes[IndexTile::kGroups][4];  // E4M3 of value · 2^-6
  float scales[IndexTile::kGroups][2];

  /// `stage` holds `keys` keys; the sixteen begin at key `first`.
  __device__ void load(uint32_t stage, int keys, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int key = lane / 4;
    const uint32_t own = stage + (first + key) * IndexTile::kCodeBytes + lane % 4 * 4;
#pragma unroll
    for (int group = 0; group < IndexTile::kGroups; ++group) {
      const uint32_t at = own + (group + key / 2) % 4 * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t q = load_word(at + half * 8 * IndexTile::kCodeBytes);
        codes[group][half] = low_codes(q);
        codes[group][2 + half] = (q & 0x80808080u) | (q >> 2 & 0x1c1c1c1cu);
      }
    }
    const uint32_t at = stage + keys * IndexTile::kCodeBytes + (first + key) * IndexTile::kGroups;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t q = load_word(at + 8 * half * IndexTile::kGroups);
      scales[0][half] = __uint_as_float(q << 23 & 0x7f800000u);
      scales[1][half] = __uint_as_float(q << 15 & 0x7f800000u);
      scales[2][half] = __uint_as_float(q << 7 & 0x7f800000u);
      scales[3][half] = __uint_as_float(q >> 1 & 0x7f800000u);
    }
  }

 private:
  /// The even codes of a word. A sign, two bits too low, carries through the two ones above it.
  __device__ static uint32_t low_codes(uint32_t q) {
    uint32_t carried = 0;  // one instruction, which the compiler would take apart
    asm("mad.lo.u32 %0, %1, 4, 0x60606060;" : "=r"(carried) : "r"(q & 0x0f0f0f0fu));
    return carried & 0x9f9f9f9fu;
  }
  __device__ static uint32_t load_word(uint32_t address) {
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
  }
};

}  // namespace di::ops::cuda
