// A CTA takes a slice of 16,384 places of a row into registers and finds the k best of them by
// radix selection on the 30-bit number [order key | inverted place], which is unique: so ties need
// no care. A first look at the best of every eight places tells which places cannot be among the k
// best; only the others are counted. What many slices of a row keep is selected from again, until
// one is left.
#include <algorithm>

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/index_top_k.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kVectors = 4;  // of eight keys, a thread
constexpr int kKeys = 8;
constexpr int kSlice = kThreads * kVectors * kKeys;
constexpr int kPlaceBits = 14;
static_assert(kSlice == 1 << kPlaceBits);
constexpr uint32_t kSmallest = 1u << kPlaceBits;  // a place with key 1
constexpr int kTopBits = 12;                      // digits of the radix selection: 12, 9 and 9 bits
constexpr int kLowBits = 9;
static_assert(kTopBits + 2 * kLowBits == 16 + kPlaceBits);
static_assert(1 << kLowBits == kThreads);

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
  uint32_t top[1 << kTopBits];
  uint32_t low[1 << kLowBits];
  uint32_t warp_sums[kWarps];
  uint32_t vector_sums[kVectors * kWarps];
  uint32_t digit;
  uint32_t above;
  uint32_t in_digit;
};

__device__ uint32_t inclusive_scan(uint32_t x) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, x, distance);
    if (lane >= distance) x += other;
  }
  return x;
}

/// The largest digit that at least `wanted` counted items reach or exceed.
struct Digit {
  uint32_t value;
  uint32_t above;  ///< items of larger digits
  uint32_t own;    ///< items of this digit
};

/// Reads and clears `counts`, one number for each of kThreads · kPerThread digits. When fewer than
/// `wanted` items were counted: digit 0 with as many above it, so that everything is wanted.
template <int kPerThread>
__device__ Digit find_digit(SharedMemory& shared, uint32_t* counts, uint32_t wanted) {
  const int thread = static_cast<int>(threadIdx.x);
  const int first = (kThreads - 1 - thread) * kPerThread;  // the largest digits first
  uint32_t own[kPerThread];
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    own[i] = counts[first + i];
    counts[first + i] = 0;
    sum += own[i];
  }
  const uint32_t inclusive = inclusive_scan(sum);
  if (thread % 32 == 31) shared.warp_sums[thread / 32] = inclusive;
  if (thread == 0) {
    shared.digit = 0;
    shared.in_digit = 0;
  }
  __syncthreads();
  const int lane = thread % 32;
  const uint32_t before =
      __reduce_add_sync(0xffffffffu, lane < thread / 32 ? shared.warp_sums[lane % kWarps] : 0u);
  uint32_t above = before + inclusive - sum;
  if (thread == kThreads - 1) shared.above = above + sum;
  __syncthreads();
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

/// A thread's keys of the slice: vector v holds places (v · kThreads + thread) · 8 and on.
struct SliceKeys {
  uint4 vectors[kVectors];

  __device__ SliceKeys(const uint16_t* keys, int count) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int place = first_place(v);
      vectors[v] = {};
      if (place < count) vectors[v] = *reinterpret_cast<const uint4*>(keys + place);
    }
  }
  __device__ static int first_place(int v) {
    return (v * kThreads + static_cast<int>(threadIdx.x)) * kKeys;
  }
  __device__ uint32_t key(int v, int i) const {
    const uint32_t words[4] = {vectors[v].x, vectors[v].y, vectors[v].z, vectors[v].w};
    return i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16;
  }
  __device__ uint32_t item(int v, int i) const {
    return key(v, i) << kPlaceBits | static_cast<uint32_t>(kSlice - 1 - first_place(v) - i);
  }
  __device__ uint32_t best(int v) const {
    const uint32_t all =
        __vmaxu2(__vmaxu2(vectors[v].x, vectors[v].y), __vmaxu2(vectors[v].z, vectors[v].w));
    return max(all & 0xffffu, all >> 16);
  }
};

/// Counts the digit at `shift` of the items that are at least `floor` and share `prefix` above it.
__device__ void count_digits(
    const SliceKeys& keys, uint32_t* counts, uint32_t floor, uint32_t prefix, int shift, int bits
) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (keys.best(v) < floor >> kPlaceBits) continue;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const uint32_t item = keys.item(v, i);
      if (item >= floor && item >> (shift + bits) == prefix) {
        atomicAdd(&counts[item >> shift & ((1u << bits) - 1)], 1u);
      }
    }
  }
}

/// The smallest item among the k best; everything with a key when there are no more than k.
__device__ uint32_t find_threshold(SharedMemory& shared, const SliceKeys& keys, uint32_t k) {
  constexpr int kTopShift = 2 * kLowBits;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const uint32_t best = keys.best(v);
    if (best != 0) atomicAdd(&shared.top[best >> (16 - kTopBits)], 1u);
  }
  __syncthreads();
  constexpr int kPerThread = (1 << kTopBits) / kThreads;
  const Digit bound = find_digit<kPerThread>(shared, shared.top, k);
  const uint32_t floor = max(bound.value << kTopShift, kSmallest);

  count_digits(keys, shared.top, floor, 0, kTopShift, kTopBits);
  __syncthreads();
  Digit digit = find_digit<kPerThread>(shared, shared.top, k);
  if (digit.own == 0) return kSmallest;  // not even k
  uint32_t prefix = digit.value;
  uint32_t wanted = k - digit.above;
  int shift = kTopShift;
#pragma unroll 1
  while (shift > 0 && digit.own != wanted) {
    shift -= kLowBits;
    count_digits(keys, shared.low, floor, prefix, shift, kLowBits);
    __syncthreads();
    digit = find_digit<1>(shared, shared.low, wanted);
    prefix = prefix << kLowBits | digit.value;
    wanted -= digit.above;
  }
  return max(prefix << shift, kSmallest);
}

/// Where this thread's selected places of each vector go: their rank in the order of places.
struct Ranks {
  uint32_t first[kVectors];
  uint32_t total;

  __device__ Ranks(SharedMemory& shared, const uint32_t (&masks)[kVectors]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    static_assert(kVectors == 4 && kVectors * kWarps == 64);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // two counts of up to 256 share a register
      const uint32_t own =
          static_cast<uint32_t>(__popc(masks[2 * half]) | __popc(masks[2 * half + 1]) << 16);
      const uint32_t inclusive = inclusive_scan(own);
      first[2 * half] = (inclusive - own) & 0xffffu;
      first[2 * half + 1] = (inclusive - own) >> 16;
      if (lane == 31) {
        shared.vector_sums[2 * half * kWarps + warp] = inclusive & 0xffffu;
        shared.vector_sums[(2 * half + 1) * kWarps + warp] = inclusive >> 16;
      }
    }
    __syncthreads();
    const uint32_t low = shared.vector_sums[lane];
    const uint32_t high = shared.vector_sums[lane + 32];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int at = v * kWarps + warp;
      first[v] +=
          __reduce_add_sync(0xffffffffu, (lane < at ? low : 0u) + (lane + 32 < at ? high : 0u));
    }
    total = __reduce_add_sync(0xffffffffu, low + high);
  }
};

/// Block x takes the row, block y the slice.
__global__ void __launch_bounds__(kThreads, 2) keep_best(TopKCall call) {
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
  if (slice > 0 && slice * kSlice >= count) return;

  for (int i = static_cast<int>(threadIdx.x); i < 1 << kTopBits; i += kThreads)
    shared.top[i] = 0;
  shared.low[threadIdx.x] = 0;
  const int begin = slice * kSlice;
  const SliceKeys keys(call.keys + chunk_row * call.stride + begin, count - begin);
  __syncthreads();
  const uint32_t threshold = find_threshold(shared, keys, static_cast<uint32_t>(call.k));

  uint32_t masks[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    masks[v] = 0;
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
      masks[v] |= keys.item(v, i) >= threshold ? 1u << i : 0u;
  }
  const Ranks ranks(shared, masks);
  int32_t* values = last ? call.out + row * call.k
                         : call.kept.values + chunk_row * call.kept.stride + slice * call.width;
  uint16_t* kept = call.kept.keys + chunk_row * call.kept.stride + slice * call.width;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    uint32_t rank = ranks.first[v];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if ((masks[v] >> i & 1) == 0) continue;
      values[rank] = call.value(row, chunk_row, begin + SliceKeys::first_place(v) + i);
      if (!last) kept[rank] = static_cast<uint16_t>(keys.key(v, i));
      ++rank;
    }
  }
  const int end = last ? call.k : call.width;
  for (int i = static_cast<int>(ranks.total + threadIdx.x); i < end; i += kThreads) {
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
