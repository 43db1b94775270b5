// A CTA takes a slice of 16,384 places of a row and finds the k best of them by radix selection on
// the 30-bit number [order key | inverted place], which is unique: so ties need no care. The best
// of every eight places, a vector, tells first which vectors can hold any of the k best; only those
// are looked at again. What many slices of a row keep is selected from again, until one slice is
// left.
#include <algorithm>

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/index_top_k.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 8;        // of a vector of 16 bytes
constexpr int kOwnVectors = 4;  // that a thread loads
constexpr int kVectors = kThreads * kOwnVectors;
constexpr int kSlice = kVectors * kKeys;
constexpr int kPlaceBits = 14;
static_assert(kSlice == 1 << kPlaceBits && kSlice == kThreads * 32);
constexpr int kHighBits = 11;  // of the digits of the radix selection
constexpr int kMiddleBits = 10;
constexpr int kLowBits = 9;
static_assert(kHighBits + kMiddleBits + kLowBits == 16 + kPlaceBits);
constexpr int kTopKeyShift = 16 - kHighBits;  // of the part of a key that the first digit holds
constexpr int kMaxDigits = 1 << kHighBits;
constexpr uint32_t kSmallest = 1u << kPlaceBits;  // a place with key 1

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
  const uint16_t* keys = nullptr;   // [rows, stride]
  const int32_t* values = nullptr;  // [rows, stride]: what is selected; nullptr: the place itself
  int64_t stride = 0;
  KeptPlaces kept;         // where a row of several slices goes
  int32_t* out = nullptr;  // [rows, k], from the op's first row: where a row of one slice goes
  int k = 0;
  int width = 0;  // k rounded up to whole vectors

  __device__ static int slices(int count) { return (count + kSlice - 1) / kSlice; }

  /// Places of a row before the first round.
  __device__ int count(int64_t row) const {
    const int visible = index.visible(row);
    return blocks ? (visible + index.block_size - 1) / index.block_size : index.places(visible);
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
  uint4 vectors[kVectors];           // that may hold any of the best, in any order
  uint16_t vector_places[kVectors];  // which of the slice's they are
  uint32_t counts[kMaxDigits];       // of digits; zero between passes
  uint32_t selected[kThreads];       // a bit for each place
  uint32_t warp_sums[kWarps];
  uint32_t num_vectors;
  uint32_t digit;
  uint32_t above;
  uint32_t in_digit;
};

__device__ int own_thread() {
  return static_cast<int>(threadIdx.x);
}

__device__ uint32_t best_of(const uint4& vector) {
  const uint32_t all = __vmaxu2(__vmaxu2(vector.x, vector.y), __vmaxu2(vector.z, vector.w));
  return max(all & 0xffffu, all >> 16);
}

/// Calls visit(i, item) for the eight items of vector `place` of the slice.
template <class Visit>
__device__ void visit_items(const uint4& vector, int place, const Visit& visit) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
  const auto last = static_cast<uint32_t>(kSlice - 1 - place * kKeys);
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const uint32_t key = i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16;
    visit(i, key << kPlaceBits | (last - static_cast<uint32_t>(i)));
  }
}

/// Exclusive sum over the threads before this one, and the sum over all. The CTA calls it; a
/// barrier must lie between two calls.
struct Prefix {
  uint32_t before;
  uint32_t total;
};
__device__ Prefix prefix_sum(SharedMemory& shared, uint32_t own) {
  const int lane = own_thread() % 32;
  const int warp = own_thread() / 32;
  uint32_t inclusive = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (lane >= distance) inclusive += other;
  }
  if (lane == 31) shared.warp_sums[warp] = inclusive;
  __syncthreads();
  const uint32_t sum = lane < kWarps ? shared.warp_sums[lane] : 0;
  const uint32_t warps_before = __reduce_add_sync(0xffffffffu, lane < warp ? sum : 0);
  return {warps_before + inclusive - own, __reduce_add_sync(0xffffffffu, sum)};
}

/// The largest digit that at least `wanted` counted items reach or exceed.
struct Digit {
  uint32_t value;
  uint32_t above;  ///< items of larger digits
  uint32_t own;    ///< items of this digit; 0: fewer than `wanted` items were counted
};

/// Reads and clears the counts of kThreads · kPerThread digits, which all threads have made.
template <int kPerThread>
__device__ Digit find_digit(SharedMemory& shared, uint32_t wanted) {
  const int first = (kThreads - 1 - own_thread()) * kPerThread;  // the largest digits first
  uint32_t own[kPerThread];
  uint32_t sum = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    own[i] = shared.counts[first + i];
    shared.counts[first + i] = 0;
    sum += own[i];
  }
  const Prefix prefix = prefix_sum(shared, sum);
  if (prefix.total < wanted) return {0, prefix.total, 0};
  uint32_t above = prefix.before;
  if (above < wanted && wanted <= above + sum) {
#pragma unroll
    for (int i = kPerThread - 1; i >= 0; --i) {
      if (above < wanted && wanted <= above + own[i]) {
        shared.digit = static_cast<uint32_t>(first + i);
        shared.above = above;
        shared.in_digit = own[i];
      }
      above += own[i];
    }
  }
  __syncthreads();
  return {shared.digit, shared.above, shared.in_digit};
}

/// Loads the slice and leaves in shared memory the vectors that may hold any of the k best. Returns
/// the smallest key that these may have.
__device__ uint32_t
gather_vectors(SharedMemory& shared, const uint16_t* keys, int count, uint32_t k) {
  uint4 vectors[kOwnVectors];
#pragma unroll
  for (int v = 0; v < kOwnVectors; ++v) {
    const int place = (v * kThreads + own_thread()) * kKeys;
    vectors[v] = {};
    if (place < count) vectors[v] = *reinterpret_cast<const uint4*>(keys + place);
  }
  for (int i = own_thread(); i < kMaxDigits; i += kThreads)
    shared.counts[i] = 0;
  shared.selected[own_thread()] = 0;
  if (own_thread() == 0) shared.num_vectors = 0;
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kOwnVectors; ++v) {
    const uint32_t best = best_of(vectors[v]);
    if (best != 0) atomicAdd(&shared.counts[best >> kTopKeyShift], 1u);
  }
  const Digit bound = find_digit<kMaxDigits / kThreads>(shared, k);
  const uint32_t floor = max(bound.value << kTopKeyShift, 1u);
#pragma unroll
  for (int v = 0; v < kOwnVectors; ++v) {
    const bool kept = best_of(vectors[v]) >= floor;
    const uint32_t warp_kept = __ballot_sync(0xffffffffu, kept);
    const int lane = own_thread() % 32;
    uint32_t base = 0;
    if (lane == 0) base = atomicAdd(&shared.num_vectors, __popc(warp_kept));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (kept) {
      const uint32_t at = base + __popc(warp_kept & ((1u << lane) - 1));
      shared.vectors[at] = vectors[v];
      shared.vector_places[at] = static_cast<uint16_t>(v * kThreads + own_thread());
    }
  }
  __syncthreads();
  return floor;
}

/// Counts the digit of `bits` bits at `shift` of the items that are at least `floor` and have
/// `prefix` above it.
__device__ void count_digits(
    SharedMemory& shared, uint32_t floor, uint32_t prefix, int shift, int bits
) {
  const uint32_t mask = (1u << bits) - 1;
  for (uint32_t at = threadIdx.x; at < shared.num_vectors; at += kThreads) {
    visit_items(shared.vectors[at], shared.vector_places[at], [&](int, uint32_t item) {
      if (item >= floor && item >> (shift + bits) == prefix) {
        atomicAdd(&shared.counts[item >> shift & mask], 1u);
      }
    });
  }
}

/// The smallest item among the k best; everything with a key when there are no more than k.
__device__ uint32_t find_threshold(SharedMemory& shared, uint32_t floor_key, uint32_t k) {
  constexpr int kMiddleShift = kLowBits;
  constexpr int kTopShift = kLowBits + kMiddleBits;
  const uint32_t floor = floor_key << kPlaceBits;
  count_digits(shared, floor, 0, kTopShift, kHighBits);
  const Digit top = find_digit<(1 << kHighBits) / kThreads>(shared, k);
  if (top.own == 0) return kSmallest;
  uint32_t wanted = k - top.above;
  if (top.own == wanted) return max(top.value << kTopShift, kSmallest);

  count_digits(shared, floor, top.value, kMiddleShift, kMiddleBits);
  const Digit middle = find_digit<(1 << kMiddleBits) / kThreads>(shared, wanted);
  const uint32_t prefix = top.value << kMiddleBits | middle.value;
  wanted -= middle.above;
  if (middle.own == wanted) return max(prefix << kMiddleShift, kSmallest);

  count_digits(shared, floor, prefix, 0, kLowBits);
  const Digit low = find_digit<(1 << kLowBits) / kThreads>(shared, wanted);
  return prefix << kLowBits | low.value;
}

/// Sets the bits of the places that are at least `threshold`.
__device__ void mark_selected(SharedMemory& shared, uint32_t threshold) {
  auto* bytes = reinterpret_cast<uint8_t*>(shared.selected);  // one for each vector
  for (uint32_t at = threadIdx.x; at < shared.num_vectors; at += kThreads) {
    const int place = shared.vector_places[at];
    uint32_t mask = 0;
    visit_items(shared.vectors[at], place, [&](int i, uint32_t item) {
      mask |= item >= threshold ? 1u << i : 0u;
    });
    bytes[place] = static_cast<uint8_t>(mask);
  }
  __syncthreads();
}

/// Block x takes the row, block y the slice.
__global__ void __launch_bounds__(kThreads, 3) keep_best(TopKCall call) {
  __shared__ SharedMemory shared;
  const int64_t chunk_row = blockIdx.x;
  const int64_t row = call.index.scores.first_row + chunk_row;
  const int slice = static_cast<int>(blockIdx.y);
  int count = call.count(row);
  for (int round = 0; round < call.round; ++round) {
    if (count <= kSlice) return;  // an earlier round has finished this row
    count = TopKCall::slices(count) * call.width;
  }
  const bool last = count <= kSlice;
  const int begin = slice * kSlice;
  if (slice > 0 && begin >= count) return;

  const uint16_t* keys = call.keys + chunk_row * call.stride + begin;
  const auto k = static_cast<uint32_t>(call.k);
  const uint32_t floor = gather_vectors(shared, keys, count - begin, k);
  mark_selected(shared, find_threshold(shared, floor, k));

  uint32_t bits = shared.selected[own_thread()];
  const Prefix rank = prefix_sum(shared, __popc(bits));
  int32_t* values = last ? call.out + row * call.k
                         : call.kept.values + chunk_row * call.kept.stride + slice * call.width;
  uint16_t* kept = call.kept.keys + chunk_row * call.kept.stride + slice * call.width;
  for (uint32_t at = rank.before; bits != 0; bits &= bits - 1, ++at) {
    const int place = own_thread() * 32 + __ffs(static_cast<int>(bits)) - 1;
    values[at] = call.value(row, chunk_row, begin + place);
    if (!last) kept[at] = keys[place];
  }
  const int end = last ? call.k : call.width;
  for (int i = static_cast<int>(rank.total) + own_thread(); i < end; i += kThreads) {
    if (last) {
      values[i] = -1;
    } else {
      kept[i] = 0;
    }
  }
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

int64_t slices_of(int64_t count) {
  return std::max<int64_t>(1, (count + kSlice - 1) / kSlice);
}

KeptPlaces kept_places(Arena& scratch, int64_t rows, int64_t stride) {
  return {scratch.take<uint16_t>(rows * stride), scratch.take<int32_t>(rows * stride), stride};
}

/// All rounds of a selection among up to `places` places of a row.
void keep_best_of_all(Exec& exec, TopKCall call, int64_t places) {
  if (call.k == 0) return;
  const Arena::Scope scope(exec.scratch);
  call.width = (call.k + kKeys - 1) / kKeys * kKeys;
  const int64_t rows = call.index.scores.rows;
  for (call.round = 0;; ++call.round) {
    const int64_t slices = slices_of(places);
    if (slices > 1) call.kept = kept_places(exec.scratch, rows, slices * call.width);
    const dim3 grid(static_cast<unsigned int>(rows), static_cast<unsigned int>(slices));
    keep_best<<<grid, kThreads, 0, exec.stream>>>(call);
    check_launch("index_select: top-k");
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
