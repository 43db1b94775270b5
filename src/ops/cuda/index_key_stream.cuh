// Index keys on their way to the tensor cores: asynchronous copies of a warp's own into a ring of
// shared memory, and their unpacking from FP4 to E4M3 registers. A value times 2^-6 is E2M1's bits
// in E4M3's fields, subnormal or not.
#pragma once

#include "ops/cuda/index_queries.cuh"
#include "ops/cuda/pipeline.cuh"

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

/// A warp's keys of a run, neighbours or chunks of every tile, through a ring of its own. A
/// lane copies the 16-byte piece lane % 4 of keys lane / 4, lane / 4 + 8 and so on; pieces are
/// rotated so that the reads of a fragment meet no bank twice. What must be looked up, candidates
/// and blocks, is looked up for many tiles at once, by a lane each.
template <bool kCandidates, int kHalves>
class KeyStream {
 public:
  using Tile = KeyTile<kHalves>;

  /// Tiles first, first + step and on, into the ring at shared-memory address `ring`.
  __device__ KeyStream(const IndexCall& call, const KeyRun& run, int first, int step, uint32_t ring)
      : call_(call), run_(run), step_(step * Tile::kKeys) {
    const int lane = own_lane();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const int key = lane / 4;
    place_ = first * Tile::kKeys + warp * Tile::kWarpKeys;
    from_ = call.keys.base + lane * 16;
    asm("" : "+l"(from_));  // kept, not computed again
    to_ = ring + key * IndexTile::kCodeBytes + (lane + key / 2) % 4 * 16;
    scales_to_ = ring + Tile::kWarpKeys * IndexTile::kCodeBytes + lane * 16;
    copies_scales_ = lane < 4 * kHalves;
  }

  /// Starts the copies of the first tiles, into all stages but the last.
  __device__ void copy_first() {
    for (int stage = 0; stage < kStages - 1; ++stage)
      copy_next(stage * Tile::kStageBytes);
  }

  /// Starts the copies of the next tile into the stage at byte `stage` of the ring; a batch even
  /// when there is none.
  __device__ void copy_next(uint32_t stage) {
    if (tiles_ % kTilesAhead == 0) look_up();
    if constexpr (kCandidates) {
      copy_chunks(stage);
    } else {
      copy_neighbours(stage);
    }
    commit_copies();
    place_ += step_;
    ++tiles_;
  }

 private:
  static constexpr int kChunks = 2 * kHalves;
  static constexpr int kLookUps = kCandidates ? kChunks : 1;  // for a tile
  static constexpr int kTilesAhead = 32 / kLookUps;

  __device__ static int own_lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Lane l finds look-up l % kLookUps of the tile l / kLookUps tiles ahead. The first entry of the
  /// sequence stands for what is not there.
  __device__ void look_up() {
    const int place = place_ + own_lane() / kLookUps * step_ + own_lane() % kLookUps * kChunk;
    entry_ = place < run_.places ? max(entry_at<kCandidates>(call_, run_, place), 0) : 0;
    block_ = run_.places > 0 ? run_.table[entry_ >> call_.block_shift] : 0;
  }

  /// Where this lane begins to copy the codes of an entry, and from there to its scales.
  __device__ const std::byte* codes_of(int block, uint32_t in_block) const {
    return from_ +
           static_cast<uint64_t>(static_cast<uint32_t>(block)) *
               static_cast<uint32_t>(call_.keys.block_stride) +
           in_block * IndexTile::kCodeBytes;
  }
  __device__ uint32_t to_scales(uint32_t in_block) const {
    return call_.scales_at - in_block * (IndexTile::kCodeBytes - IndexTile::kGroups);
  }

  __device__ void copy_neighbours(uint32_t stage) const {
    const int block = __shfl_sync(0xffffffffu, block_, tiles_ % kTilesAhead);
    const uint32_t in_block = static_cast<uint32_t>(place_) & call_.block_mask;
    const std::byte* codes = codes_of(block, in_block);
    const bool exists = place_ < run_.places;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk)
      copy_16(to_ + stage + chunk * kChunkBytes, codes + chunk * kChunkBytes, exists);
    copy_16(scales_to_ + stage, codes + to_scales(in_block), exists && copies_scales_);
  }

  __device__ void copy_chunks(uint32_t stage) const {
    const bool exists = place_ < run_.places;
    const std::byte* scales = nullptr;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int from_lane = tiles_ % kTilesAhead * kLookUps + chunk;
      const int block = __shfl_sync(0xffffffffu, block_, from_lane);
      const int entry = __shfl_sync(0xffffffffu, entry_, from_lane);
      const uint32_t in_block = static_cast<uint32_t>(entry) & call_.block_mask;
      const std::byte* codes = codes_of(block, in_block);
      copy_16(to_ + stage + chunk * kChunkBytes, codes, exists);
      // Lanes 0 and 1 take the scales of the first chunk, 2 and 3 of the second and so on.
      if (own_lane() / 2 == chunk) scales = codes + to_scales(in_block) - 2 * 16 * chunk;
    }
    copy_16(scales_to_ + stage, scales, exists && copies_scales_);
  }

  const IndexCall& call_;
  const KeyRun& run_;
  int place_;  ///< of the warp's first key of the next tile
  int step_;   ///< in places
  int tiles_ = 0;
  const std::byte* from_;  ///< this lane's piece of the first block
  uint32_t to_;            ///< of this lane, in the first stage
  uint32_t scales_to_;
  bool copies_scales_;
  int entry_ = 0;  ///< that this lane has looked up, and its block
  int block_ = 0;
};

inline constexpr int kScaleBytes = IndexTile::kGroups * 4;  ///< of a key, as floats

/// Unpacks the scales of the warp's `keys` keys, up to 32, at `from` into floats at `to`, for all
/// lanes: the first group's, then the others' relative to it. A power of two passes through all
/// roundings, so what the groups have in common is multiplied once, behind the sum over heads.
/// True where a key's scales lie further apart than 2^63 or are not numbers: then all are absolute.
__device__ inline bool spread_scales(uint32_t from, uint32_t to, int keys) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t q = lane < keys ? load_shared_4(from + lane * IndexTile::kGroups) : 0;
  const uint32_t apart = __vabsdiffu4(q, __byte_perm(q, 0, 0));
  const bool is_wide = ((apart & 0xc0c0c0c0u) | (q & q << 1 & 0x80808080u)) != 0;
  const bool wide = __any_sync(0xffffffffu, is_wide);
  constexpr uint32_t kExponent = 0x7f800000u;
  const uint4 absolute{
      q << 23 & kExponent, q << 15 & kExponent, q << 7 & kExponent, q >> 1 & kExponent};
  const uint32_t relative = 0x3f800000u - absolute.x;
  uint4 four{
      max(absolute.x, 0x00400000u),
      absolute.y + relative,
      absolute.z + relative,
      absolute.w + relative};
  if (wide) {
    const auto number = [](uint32_t bits) { return bits == kExponent ? 0x7fc00000u : bits; };
    four = {number(absolute.x), number(absolute.y), number(absolute.z), number(absolute.w)};
  }
  if (lane < keys) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + lane * kScaleBytes),
                 "r"(four.x),
                 "r"(four.y),
                 "r"(four.z),
                 "r"(four.w)
                 : "memory");
  }
  __syncwarp();
  return wide;
}

/// A 4 that the compiler does not know: a product with it is done beside the many logical
/// operations of unpacking, by another unit than the shift that it would make of a known one. The
/// warp calls it, with 128 bytes of shared memory to itself.
__device__ inline uint32_t unknown_four(uint32_t scratch) {
  const uint32_t own = scratch + threadIdx.x % 32 * 4;
  store_shared_4(own, 4);
  __syncwarp();
  const uint32_t four = load_shared_4(own ^ 4);
  __syncwarp();
  return four;
}

/// One warp's part of a half of a tile in registers: keys lane / 4 and lane / 4 + 8 of sixteen.
struct KeyFragment {
  uint32_t codes[IndexTile::kGroups][4];  // E4M3 of value · 2^-6
  float scales[IndexTile::kGroups][2];

  /// Key `first` and the fifteen behind it: their codes lie at `codes_at`, their scales as floats,
  /// four a key, at `scales_at`; `times` is 4, or unknown_four().
  __device__ void load(uint32_t codes_at, uint32_t scales_at, int first, uint32_t times = 4) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t own = codes_at + first * IndexTile::kCodeBytes + piece_address();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t q[IndexTile::kGroups];
      load_matrices(own + half * 8 * IndexTile::kCodeBytes, q);
#pragma unroll
      for (int group = 0; group < IndexTile::kGroups; ++group) {
        codes[group][half] = low_codes(q[group], times);
        codes[group][2 + half] = (q[group] & 0x80808080u) | (q[group] >> 2 & 0x1c1c1c1cu);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 four = load_shared_16(scales_at + (first + lane / 4 + 8 * half) * kScaleBytes);
      scales[0][half] = __uint_as_float(four.x);
      scales[1][half] = __uint_as_float(four.y);
      scales[2][half] = __uint_as_float(four.z);
      scales[3][half] = __uint_as_float(four.w);
    }
  }

 private:
  /// The even codes of a word. A sign, two bits too low, carries through the two ones above it.
  __device__ static uint32_t low_codes(uint32_t q, uint32_t times) {
    uint32_t carried = 0;  // one instruction, which the compiler would take apart
    asm("mad.lo.u32 %0, %1, %2, 0x60606060;" : "=r"(carried) : "r"(q & 0x0f0f0f0fu), "r"(times));
    return carried & 0x9f9f9f9fu;
  }
  /// Where the lane finds the piece that it names to load_matrices: group lane / 8 of key lane % 8.
  __device__ static uint32_t piece_address() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return lane % 8 * IndexTile::kCodeBytes + (lane / 8 + lane % 8 / 2) % 4 * 16;
  }
};

}  // namespace di::ops::cuda
