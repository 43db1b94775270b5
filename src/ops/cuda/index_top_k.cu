// A CTA takes a slice of a row and keeps its k best, of equal keys the first. Keys are counted one
// by one by their distance from the largest, which tells the k-th in one pass wherever it lies
// within 2,048 keys of that one, sixteen binary orders of magnitude. The best of every eight
// places, a vector, are counted first: only vectors that reach the k-th of these can hold any of
// the k best. What many slices of a row keep is selected from again, until one slice is left.
#include <algorithm>

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/index_top_k.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 8;  // of a vector of 16 bytes
constexpr int kBins = 2048;
constexpr int kOwnBins = kBins / kThreads;  // of a thread
constexpr int kCoarseShift = 5;             // all keys fit into coarse bins
static_assert(kBins << kCoarseShift == 1 << 16 && kOwnBins == 4);
constexpr int kMaxRounds = 6;

// Vectors of a thread: many short slices where rows are few, else long ones.
constexpr int kShort = 4;
constexpr int kLong = 16;

constexpr int slice_of(int vectors) {
  return kThreads * kKeys * vectors;
}

/// The k best of the slices of each row, and the places that they had; what the next round reads.
struct KeptPlaces {
  uint16_t* keys = nullptr;  // [rows, stride]; slice s keeps its k best, ascending, from s · width
  int32_t* values = nullptr;
  int64_t stride = 0;
};

/// One round of a selection.
struct TopKCall {
  IndexCall index;
  bool blocks = false;  // of candidate blocks instead of places
  int round = 0;
  int slices[kMaxRounds] = {};      // places of a slice in this round and those before
  const uint16_t* keys = nullptr;   // [rows, stride]
  const int32_t* values = nullptr;  // [rows, stride]: what is selected; nullptr: the place itself
  int64_t stride = 0;
  KeptPlaces kept;         // where a row of several slices goes
  int32_t* out = nullptr;  // [rows, k], from the op's first row: where a row of one slice goes
  int k = 0;
  int width = 0;  // k rounded up to whole vectors

  /// Places of a row before the first round.
  __device__ int first_count(int64_t row) const {
    const int visible = index.visible(row);
    return blocks ? (visible + index.block_size - 1) / index.block_size : index.places(visible);
  }

  /// Places of a row in this round; −1: an earlier one has finished it.
  __device__ int count(int64_t row) const {
    int count = first_count(row);
    for (int before = 0; before < round; ++before) {
      if (count <= slices[before]) return -1;
      count = (count + slices[before] - 1) / slices[before] * width;
    }
    return count;
  }

  /// What a selected place stands for.
  __device__ int32_t value(int64_t row, int64_t chunk_row, int place) const {
    if (values != nullptr) return values[chunk_row * stride + place];
    if (blocks || index.candidates == nullptr) return place;
    const int32_t block = index.candidates[row * index.width + place / index.block_size];
    return block * index.block_size + place % index.block_size;
  }
};

struct SharedMemory {
  uint4 counts[kThreads];  // of kBins bins; zero between passes
  uint32_t warp_sums[kWarps];
  uint32_t bin;
  uint32_t before;
  uint32_t in_bin;
};

__device__ int own_thread() {
  return static_cast<int>(threadIdx.x);
}
__device__ int own_lane() {
  return own_thread() % 32;
}
__device__ int own_warp() {
  return own_thread() / 32;
}

__device__ uint32_t best_of(const uint4& vector) {
  const uint32_t all = __vmaxu2(__vmaxu2(vector.x, vector.y), __vmaxu2(vector.z, vector.w));
  return max(all & 0xffffu, all >> 16);
}

/// Calls visit(i, key) for the eight keys of a vector.
template <class Visit>
__device__ void visit_keys(const uint4& vector, const Visit& visit) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < kKeys; ++i)
    visit(i, i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16);
}

/// Sum over the lanes before this one.
__device__ uint32_t sum_before_lane(uint32_t own) {
  uint32_t inclusive = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (own_lane() >= distance) inclusive += other;
  }
  return inclusive - own;
}

/// Exclusive sum over the threads before this one, and the sum over all. The CTA calls it; a
/// barrier must lie between two calls.
struct Prefix {
  uint32_t before;
  uint32_t total;
};
__device__ Prefix prefix_sum(SharedMemory& shared, uint32_t own) {
  const uint32_t before = sum_before_lane(own);
  if (own_lane() == 31) shared.warp_sums[own_warp()] = before + own;
  __syncthreads();
  const uint32_t sum = own_lane() < kWarps ? shared.warp_sums[own_lane()] : 0;
  const uint32_t warps_before = __reduce_add_sync(0xffffffffu, own_lane() < own_warp() ? sum : 0);
  return {warps_before + before, __reduce_add_sync(0xffffffffu, sum)};
}

/// The largest of all threads' numbers; a barrier must lie between this and the next sum.
__device__ uint32_t largest(SharedMemory& shared, uint32_t own) {
  const uint32_t of_warp = __reduce_max_sync(0xffffffffu, own);
  if (own_lane() == 0) shared.warp_sums[own_warp()] = of_warp;
  __syncthreads();
  return __reduce_max_sync(0xffffffffu, own_lane() < kWarps ? shared.warp_sums[own_lane()] : 0);
}

/// Adds one to a number in shared memory, if `wanted`, without a branch.
__device__ void count_one(uint32_t address, bool wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p red.shared.add.u32 [%0], 1;\n}\n" ::"r"(address),
      "r"(static_cast<int>(wanted))
      : "memory"
  );
}

/// Bins of 2^shift keys each from `top` down. Keys above `top` are in none, or in the first.
struct Bins {
  uint32_t top;
  int shift;
  bool holds_larger;

  __device__ void count(SharedMemory& shared, uint32_t key) const {
    const uint32_t bin = (top - (holds_larger ? min(key, top) : key)) >> shift;
    count_one(shared_address(shared.counts) + bin * 4, key != 0 && bin < kBins);
  }
};

/// The first bin up to which at least `wanted` keys were counted.
struct Bin {
  uint32_t index;
  uint32_t before;  ///< keys in the bins before it
  uint32_t own;     ///< keys in it; 0: fewer than `wanted` were counted
};

/// Reads and clears the counts, which all threads have made.
__device__ Bin find_bin(SharedMemory& shared, uint32_t wanted) {
  __syncthreads();
  const uint4 four = shared.counts[own_thread()];
  shared.counts[own_thread()] = {};
  const uint32_t sum = four.x + four.y + four.z + four.w;
  const Prefix prefix = prefix_sum(shared, sum);
  if (prefix.total < wanted) return {0, prefix.total, 0};
  if (prefix.before < wanted && wanted <= prefix.before + sum) {
    const uint32_t own[kOwnBins] = {four.x, four.y, four.z, four.w};
    uint32_t before = prefix.before;
    int i = 0;
    while (before + own[i] < wanted)
      before += own[i++];
    shared.bin = static_cast<uint32_t>(own_thread() * kOwnBins + i);
    shared.before = before;
    shared.in_bin = own[i];
  }
  __syncthreads();
  return {shared.bin, shared.before, shared.in_bin};
}

/// Keys above `key` are among the k best, and so are the first `ties` of those equal to it.
struct Threshold {
  uint32_t key;
  uint32_t ties;
};

/// The threshold of the k best keys that visit_all(count) counts; `top` is above all of them but
/// kFirstOfAll. Of fewer than k keys all are above it.
template <class VisitAll>
__device__ Threshold
find_threshold(SharedMemory& shared, uint32_t top, uint32_t k, const VisitAll& visit_all) {
  const auto find = [&](const Bins& bins, uint32_t wanted) {
    visit_all([&](uint32_t key) { bins.count(shared, key); });
    return find_bin(shared, wanted);
  };
  const Bin near = find({top, 0, true}, k);
  if (near.own != 0) return {top - near.index, k - near.before};
  if (top < kBins) return {0, 0};
  top -= kBins;
  uint32_t wanted = k - near.before;
  const Bin coarse = find({top, kCoarseShift, false}, wanted);
  if (coarse.own == 0) return {0, 0};
  top -= coarse.index << kCoarseShift;
  wanted -= coarse.before;
  const Bin fine = find({top, 0, false}, wanted);
  return {top - fine.index, wanted - fine.before};
}

/// A slice: its vectors' best keys in registers, two in each.
template <int kVectors>
struct Slice {
  const uint4* vectors;
  uint32_t bests[kVectors / 2];
  uint32_t top;  ///< above all keys but kFirstOfAll

  /// Loads `count` places, up to whole vectors.
  __device__ Slice(SharedMemory& shared, const uint16_t* keys, int count)
      : vectors(reinterpret_cast<const uint4*>(keys)) {
    shared.counts[own_thread()] = {};
    uint32_t most = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kThreads + own_thread();
      const uint4 vector = at * kKeys < count ? vectors[at] : uint4{};
      const uint32_t best = best_of(vector);
      bests[v / 2] = v % 2 == 0 ? best : bests[v / 2] | best << 16;
      if (best != kFirstOfAll) {
        most = max(most, best);
      } else {
        visit_keys(vector, [&](int, uint32_t key) {
          if (key != kFirstOfAll) most = max(most, key);
        });
      }
    }
    top = largest(shared, most) + 1;
  }
  __device__ uint32_t best(int v) const {
    return v % 2 == 0 ? bests[v / 2] & 0xffffu : bests[v / 2] >> 16;
  }
};

/// Lists the vectors whose best key is at least `floor`, in order; returns how many. `counts` has
/// room for a number of each warp and vector of a thread.
template <int kVectors>
__device__ int list_vectors(
    const Slice<kVectors>& slice, uint32_t floor, uint32_t* counts, uint16_t* list
) {
  constexpr int kOwn = kVectors * kWarps / 32;  // numbers of a lane
  static_assert(kWarps % kOwn == 0);
  uint32_t own = 0;  // lane v: the warp's kept vectors v
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const uint32_t kept = __ballot_sync(0xffffffffu, slice.best(v) >= floor);
    if (own_lane() == v) own = __popc(kept);
  }
  if (own_lane() < kVectors) counts[own_lane() * kWarps + own_warp()] = own;
  __syncthreads();
  uint32_t sum = 0;
  uint32_t within = 0;  // of this warp's number among a lane's
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i == own_warp() % kOwn) within = sum;
    sum += counts[own_lane() * kOwn + i];
  }
  const uint32_t before = sum_before_lane(sum);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const bool is_kept = slice.best(v) >= floor;
    const uint32_t kept = __ballot_sync(0xffffffffu, is_kept);
    const uint32_t base =
        __shfl_sync(0xffffffffu, before + within, (v * kWarps + own_warp()) / kOwn);
    const uint32_t at = base + __popc(kept & ((1u << own_lane()) - 1));
    if (is_kept) list[at] = static_cast<uint16_t>(v * kThreads + own_thread());
  }
  __syncthreads();
  return static_cast<int>(__shfl_sync(0xffffffffu, before + sum, 31));
}

/// Writes the `count` selected `places` of a slice that begins at place `begin` of the row: what
/// they stand for, and their keys too unless this is the row's last round.
__device__ void write_selected(
    const TopKCall& call,
    int64_t row,
    int begin,
    bool last,
    const uint16_t* keys,
    const uint16_t* places,
    uint32_t count
) {
  const int64_t chunk_row = blockIdx.x;
  const int64_t kept_at = chunk_row * call.kept.stride + blockIdx.y * call.width;
  int32_t* values = last ? call.out + row * call.k : call.kept.values + kept_at;
  uint16_t* kept = call.kept.keys + kept_at;
  const auto end = static_cast<uint32_t>(last ? call.k : call.width);
  for (uint32_t i = threadIdx.x; i < end; i += kThreads) {
    const bool is_selected = i < count;
    if (last || is_selected) {
      values[i] = is_selected ? call.value(row, chunk_row, begin + places[i]) : -1;
    }
    if (!last) kept[i] = is_selected ? keys[places[i]] : uint16_t{0};
  }
}

/// Block x takes the row, block y the slice.
template <int kVectors>
__global__ void __launch_bounds__(kThreads, kVectors == kShort ? 3 : 2)
    keep_best(const __grid_constant__ TopKCall call) {
  __shared__ SharedMemory shared;
  __shared__ uint32_t vector_counts[kVectors * kWarps];
  __shared__ uint16_t list[kVectors * kThreads];
  __shared__ uint16_t places[kMaxTopK];  // that are selected
  constexpr int kSlice = slice_of(kVectors);
  const int64_t chunk_row = blockIdx.x;
  const int64_t row = call.index.scores.first_row + chunk_row;
  const int slice_index = static_cast<int>(blockIdx.y);
  const int begin = slice_index * kSlice;
  wait_for_previous_kernels();
  const int count = call.count(row);
  if (count < 0 || (begin > 0 && begin >= count)) return;
  const auto k = static_cast<uint32_t>(call.k);
  const uint16_t* keys = call.keys + chunk_row * call.stride + begin;
  const Slice<kVectors> slice(shared, keys, count - begin);
  const Threshold floor = find_threshold(shared, slice.top, k, [&](const auto& visit) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      visit(slice.best(v));
  });
  const int listed = list_vectors(slice, max(floor.key, 1u), vector_counts, list);
  // A thread takes two neighbours of the list at a time.
  const auto load_pair = [&](int at, uint4(&pair)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      pair[i] = at + i < listed ? slice.vectors[list[at + i]] : uint4{};
  };
  uint4 first[2];
  load_pair(2 * own_thread(), first);
  const Threshold threshold = find_threshold(shared, slice.top, k, [&](const auto& visit) {
    uint4 pair[2] = {first[0], first[1]};
    for (int at = 2 * own_thread();;) {
      for (const uint4& vector : pair) {
        visit_keys(vector, [&](int, uint32_t key) { visit(key >= floor.key ? key : 0); });
      }
      at += 2 * kThreads;
      if (at >= listed) break;
      load_pair(at, pair);
    }
  });

  uint32_t larger = 0;  // of the vectors before
  uint32_t equal = 0;
  for (int base = 0; base < listed; base += 2 * kThreads) {
    const int own_at = base + 2 * own_thread();
    if (base > 0) load_pair(own_at, first);
    uint32_t own = 0;  // larger keys and, sixteen bits above, equal ones
    for (const uint4& vector : first) {
      visit_keys(vector, [&](int, uint32_t key) {
        if (key > threshold.key) own += 1;
        if (key == threshold.key) own += 1u << 16;
      });
    }
    __syncthreads();
    const Prefix prefix = prefix_sum(shared, own);
    uint32_t ties = equal + (prefix.before >> 16);
    uint32_t at = larger + (prefix.before & 0xffffu) + min(ties, threshold.ties);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int place = (own_at + v < listed ? list[own_at + v] : 0) * kKeys;
      visit_keys(first[v], [&](int i, uint32_t key) {
        const bool is_tie = key == threshold.key;
        if (key > threshold.key || (is_tie && ties < threshold.ties)) {
          places[at++] = static_cast<uint16_t>(place + i);
        }
        ties += is_tie ? 1 : 0;
      });
    }
    larger += prefix.total & 0xffffu;
    equal += prefix.total >> 16;
  }
  __syncthreads();
  write_selected(
      call, row, begin, count <= kSlice, keys, places, larger + min(equal, threshold.ties)
  );
}

/// The best key of every block of a row, kFirstOfAll for the newest; zeros up to a whole vector.
__global__ void best_of_blocks(IndexCall call, uint16_t* keys, int64_t stride) {
  const int64_t chunk_row = blockIdx.y;
  const int visible = call.visible(call.scores.first_row + chunk_row);
  const int blocks = (visible + call.block_size - 1) / call.block_size;
  const uint16_t* scores = call.scores.keys + chunk_row * call.scores.stride;
  const int end = (blocks + kKeys - 1) / kKeys * kKeys;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int block = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); block < end;
       block += step) {
    uint32_t best = 0;
    if (block < blocks) {
      const int first = block * call.block_size;
      const int count = min(call.block_size, visible - first);
      if (call.block_size == kKeys) {  // behind the last entry lie zeros
        const uint4 v = *reinterpret_cast<const uint4*>(scores + first);
        const uint32_t pair = __vmaxu2(__vmaxu2(v.x, v.y), __vmaxu2(v.z, v.w));
        best = max(pair & 0xffffu, pair >> 16);
      } else {
        for (int i = 0; i < count; ++i)
          best = max(best, uint32_t{scores[first + i]});
      }
      if (block == blocks - 1) best = kFirstOfAll;
    }
    keys[chunk_row * stride + block] = static_cast<uint16_t>(best);
  }
}

KeptPlaces kept_places(Arena& scratch, int64_t rows, int64_t stride) {
  return {scratch.take<uint16_t>(rows * stride), scratch.take<int32_t>(rows * stride), stride};
}

/// Vectors of a thread for slices of `rows` rows of up to `places` places.
#ifdef TUNE
int force_vectors = 0;
#endif
int vectors_of(int64_t rows, int64_t places) {
#ifdef TUNE
  if (force_vectors != 0) return force_vectors;
#endif
  if (places <= slice_of(kShort)) return kShort;
  if (places <= slice_of(kLong)) return kLong;
  return rows * places / slice_of(kShort) <= 2 * num_sms() ? kShort : kLong;
}

/// All rounds of a selection among up to `places` places of a row.
void keep_best_of_all(Exec& exec, TopKCall call, int64_t places) {
  if (call.k == 0) return;
  const Arena::Scope scope(exec.scratch);
  call.width = (call.k + kKeys - 1) / kKeys * kKeys;
  const int64_t rows = call.index.scores.rows;
  for (call.round = 0;; ++call.round) {
    const int vectors = vectors_of(rows, places);
    const int64_t slice = slice_of(vectors);
    const int64_t slices = std::max<int64_t>(1, (places + slice - 1) / slice);
    call.slices[call.round] = static_cast<int>(slice);
    if (slices > 1) call.kept = kept_places(exec.scratch, rows, slices * call.width);
    const dim3 grid(static_cast<unsigned int>(rows), static_cast<unsigned int>(slices));
    auto* kernel = vectors == kShort ? &keep_best<kShort> : &keep_best<kLong>;
    launch_overlapped("index_select: top-k", kernel, grid, kThreads, 0, exec.stream, call);
    if (slices == 1) return;
    places = slices * call.width;
    call.keys = call.kept.keys;
    call.values = call.kept.values;
    call.stride = call.kept.stride;
  }
}

}  // namespace

void select_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  TopKCall call;
  call.index = index_call(op, scores);
  call.keys = scores.keys;
  call.stride = scores.stride;
  call.out = op.selected.data;
  call.k = static_cast<int>(op.selected.dim(1));
  keep_best_of_all(exec, call, max_places(op));
}

void select_blocks(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  const Arena::Scope scope(exec.scratch);
  const int64_t blocks = blocks_of(max_places(op), op.candidate_block_size);
  TopKCall call;
  call.index = index_call(op, scores);
  call.blocks = true;
  call.stride = (blocks + kKeys - 1) / kKeys * kKeys;
  auto* keys = exec.scratch.take<uint16_t>(scores.rows * call.stride);
  call.keys = keys;
  call.out = op.candidates_out.data;
  call.k = static_cast<int>(op.candidates_out.dim(1));
  constexpr int kBlockThreads = 256;
  const dim3 grid(
      std::clamp(blocks_of(blocks, kBlockThreads), 1u, 256u), static_cast<unsigned int>(scores.rows)
  );
  best_of_blocks<<<grid, kBlockThreads, 0, exec.stream>>>(call.index, keys, call.stride);
  check_launch("index_select: block maxima");
  keep_best_of_all(exec, call, blocks);
}

}  // namespace di::ops::cuda
