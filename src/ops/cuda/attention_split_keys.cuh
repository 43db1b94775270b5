// How records become tiles in attention_split.cuh, by the mixers: those of a block's own keys,
// whole, and the block's channels of all keys.
#pragma once

#include "ops/cuda/attention_split_shared.cuh"

namespace di::ops::cuda::split {

/// A round's own keys. A warp looks up, copies and unpacks up to three units by itself: eight keys
/// in four columns. The left columns come first, so that their logits can begin.
template <int kCluster>
class Keys {
 public:
  __device__ Keys(Shared<kCluster>& shared, int rank, int thread)
      : shared_(shared), rank_(rank), warp_(thread / 32), lane_(thread % 32) {}

  /// The list slot of the key that this thread looks up for a round.
  __device__ int slot(int round) const {
    const int unit = lane_ / 8 * kWarps + warp_;
    if (unit >= kUnits) return kMaxKeys;
    return round * Shared<kCluster>::kRoundKeys + rank_ * kOwnKeys + unit % kEights * 8 + lane_ % 8;
  }

  /// Notes it.
  __device__ void note(int round, PackedKey key) const {
    const int unit = lane_ / 8 * kWarps + warp_;
    const uint32_t used = __ballot_sync(0xffffffffu, key != 0);
    if (lane_ % 8 == 0 && unit < kEights)
      shared_.used[round][unit] = static_cast<uint8_t>(used >> lane_);
  }

  /// Starts the copies of a round.
  __device__ void begin(PackedKey key) {
    __syncwarp();
    shared_.list[warp_][lane_] = key;
    __syncwarp();
    const CellCopies<kColumnBytes> copies(lane_);
    formats_ = 0;
#pragma unroll 1
    for (int i = 0; i * kWarps + warp_ < kUnits; ++i) {
      const PackedKey* keys = shared_.list[warp_] + i * 8;
      if (copies.begin(shared_address(rows_of(i)), keys, half_of(i))) formats_ |= 1u << i;
    }
    commit_copies();
  }

  /// Unpacks them, and tells the weighers.
  __device__ void finish(int round) const {
    wait_for_copies<0>();
    __syncwarp();
    const int column = lane_ / 8;
#pragma unroll 1
    for (int i = 0; i * kWarps + warp_ < kUnits; ++i) {
      unpack_cell(
          rows_of(i) + column * kColumnBytes,
          lane_,
          half_of(i) * 4 + column,
          (formats_ >> i & 1) != 0
      );
      fence_async_proxy();
      __syncwarp();
      // By the lane that noted the unit.
      if (lane_ == i * 8) barrier_arrive(&shared_.keys_full[round][half_of(i)]);
    }
  }

 private:
  static constexpr int kWarps = kMixers / 32;
  static constexpr int kEights = kOwnKeys / 8;
  static constexpr int kUnits = kEights * 2;
  static_assert(4 * kWarps >= kUnits);  // a lane looks up one key

  __device__ int half_of(int turn) const {
    return (turn * kWarps + warp_) / kEights;
  }
  __device__ unsigned char* rows_of(int turn) const {
    const int unit = turn * kWarps + warp_;
    return shared_.keys(unit / kEights * 4) + unit % kEights * 8 * 128;
  }

  Shared<kCluster>& shared_;
  int rank_;
  int warp_;
  int lane_;
  uint32_t formats_ = 0;  // bit i: the lane's key of turn i is FP8
};

/// Tells all blocks how far the own keys of all rounds reach in the list, by one warp.
template <int kCluster>
__device__ inline void publish_last(Shared<kCluster>& shared, int rank, int lane) {
  constexpr int kEights = kOwnKeys / 8;
  barrier_wait(&shared.keys_full[0][0], 0);  // all keys are noted
  int last = 0;
#pragma unroll
  for (int round = 0; round < Shared<kCluster>::kRounds; ++round) {
    const int used = lane < kEights ? shared.used[round][lane] : 0;
    const int first = round * Shared<kCluster>::kRoundKeys + rank * kOwnKeys + lane * 8;
    if (used != 0) last = first + 32 - __clz(used);
  }
  last = __reduce_max_sync(0xffffffffu, last);
  if (lane < kCluster) send(&shared.last[rank], last, &shared.maxima_full[0], lane);
  __syncwarp();
}

/// The block's channels of all keys of a round. Each thread takes whole cells.
template <int kCluster>
class ValueCells {
 public:
  static constexpr int kTurns = 3;

  __device__ ValueCells(Shared<kCluster>& shared, int rank, int thread)
      : shared_(shared), rank_(rank), thread_(thread) {}

  /// The list slot of the thread's cell number `turn` of a round.
  __device__ int slot(int round, int turn) const {
    const int cell = turn * kMixers + thread_;
    return cell < kCells ? round * kRoundKeys + eight_of(turn) * 8 + thread_ % 8 : kMaxKeys;
  }

  /// Looks up the keys of a round, whose entries were read early.
  __device__ void find(const KeyList& list, int round, const int32_t (&entries)[kTurns]) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      keys_[i] = list.find(slot(round, i), entries[i]);
  }

  /// Starts their copies.
  __device__ void begin() const {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (i * kMixers + thread_ >= kCells) break;  // the whole warp
      if (__any_sync(0xffffffffu, keys_[i].fp8)) {
        fetch_codes(i, keys_[i]);
      } else {
        fetch_lines(i, keys_[i].record);
      }
      fetch_scales(i, keys_[i]);
    }
    commit_copies();
  }

  __device__ void finish() const {
    wait_for_copies<0>();
    __syncwarp();
    const uint32_t formats = keys_[0].fp8 | keys_[1].fp8 << 1 | keys_[2].fp8 << 2;
#pragma unroll 1
    for (int i = 0; i < kTurns; ++i) {
      if (i * kMixers + thread_ >= kCells) break;
      unpack_cell(rows_of(i), thread_ % 32, column_of(i), (formats >> i & 1) != 0);
    }
    fence_async_proxy();
  }

 private:
  static constexpr int kRoundKeys = Shared<kCluster>::kRoundKeys;
  static constexpr int kOwnColumns = Shared<kCluster>::kOwnColumns;
  static constexpr int kCells = kRoundKeys * kOwnColumns;
  static_assert(kTurns * kMixers >= kCells && kCells % 32 == 0 && kRoundKeys % 32 == 0);

  /// The eight keys among which the cell's is: its columns of them follow each other.
  __device__ int eight_of(int turn) const {
    return (turn * kMixers + thread_) / 8 / kOwnColumns;
  }
  /// The cell's number in its record.
  __device__ int column_of(int turn) const {
    return rank_ * kOwnColumns + thread_ / 8 % kOwnColumns;
  }
  /// The eight rows that hold it.
  __device__ unsigned char* rows_of(int turn) const {
    return shared_.values[thread_ / 8 % kOwnColumns][0] + eight_of(turn) * 8 * 128;
  }

  /// Each lane copies the codes of its own cell.
  __device__ void fetch_codes(int turn, const Key& key) const {
    unsigned char* rows = rows_of(turn);
    const int lane = thread_ % 32;
    const bool real = key.record != nullptr;
    const uint8_t* codes = key.record + column_of(turn) * (key.fp8 ? 64 : 32);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (part >= 2 && !key.fp8) break;
      const int chunk = codes_chunk(lane / 8, key.fp8, part);
      copy_async<16>(rows + swizzled_offset(lane % 8, chunk), codes + part * 16, real);
    }
  }

  /// Neighbouring lanes copy the FP4 codes of a key, whose cells lie side by side: each line that
  /// an instruction touches takes its time.
  __device__ void fetch_lines(int turn, const uint8_t* record) const {
    constexpr int kParts = kOwnColumns * 2;
    const int lane = thread_ % 32;
    const int part = lane % kParts;
    const int column = part / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = (i * 32 + lane) / kParts;  // of the warp's
      const int eight = key / 8;
      const uint64_t of_key = __shfl_sync(
          0xffffffffu, reinterpret_cast<uint64_t>(record), eight * kOwnColumns * 8 + key % 8
      );
      const auto* codes = reinterpret_cast<const uint8_t*>(of_key);
      unsigned char* rows = shared_.values[column][0] +
                            ((turn * kMixers + thread_) / 32 * (4 / kOwnColumns) + eight) * 8 * 128;
      const int chunk = codes_chunk(eight * kOwnColumns + column, false, part % 2);
      copy_async<16>(
          rows + swizzled_offset(key % 8, chunk),
          codes + rank_ * (kOwnColumns * 32) + part * 16,
          codes != nullptr
      );
    }
  }

  __device__ void fetch_scales(int turn, const Key& key) const {
    const int column = column_of(turn);
    const int lane = thread_ % 32;
    const int scales = key.fp8 ? kTileDim + column / 2 * 4 : kTileDim / 2 + column * 4;
    copy_async<4>(
        rows_of(turn) + scales_offset(lane, key.fp8), key.record + scales, key.record != nullptr
    );
  }

  Shared<kCluster>& shared_;
  int rank_;
  int thread_;
  Key keys_[kTurns];
};

}  // namespace di::ops::cuda::split
