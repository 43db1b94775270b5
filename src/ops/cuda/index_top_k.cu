// A CTA takes a slice of a row and keeps its k best, of equal keys the first. It reads the best key
// of every vector of eight places, which the scores came with, and finds the k-th of these, or of
// the best of four each: only vectors that reach it can hold any of the k best. They are listed in
// order, and their keys read and counted. What many slices of a row keep is selected from again,
// until one slice is left.
#include <algorithm>

#include "ops/cuda/index_slice.cuh"
#include "ops/cuda/index_top_k.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kMaxRounds = 6;
constexpr int64_t kManyRows = SmallSlice::kCtas;  // of a multiprocessor

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
  int slices[kMaxRounds] = {};  // places of a slice in this round and those before
  KeyRows from;
  const int32_t* values = nullptr;  // [rows, stride]: what is selected; nullptr: the place itself
  KeptPlaces kept;                  // where a row of several slices goes
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

  /// The newest of `count` blocks, which is above all others; −1 where there is none, or where its
  /// key says so already.
  __device__ int newest(int count) const { return blocks && round == 0 ? count - 1 : -1; }

  /// What a selected place stands for.
  __device__ int32_t value(int64_t row, int64_t chunk_row, int place) const {
    if (values != nullptr) return values[chunk_row * from.stride + place];
    if (blocks || index.candidates == nullptr) return place;
    const int32_t block = index.candidates[row * index.width + place / index.block_size];
    return block * index.block_size + place % index.block_size;
  }
};

/// Finds the selected places of the listed vectors in order; returns how many.
template <class Shape>
__device__ uint32_t find_places(
    Selector<Shape::kThreads>& shared,
    const Slice<Shape>& slice,
    const uint16_t* list,
    int listed,
    ListedVectors<Shape::kListed> own,
    const Threshold& threshold,
    int32_t* places
) {
  constexpr int kStep = Shape::kStep;
  uint32_t larger = 0;  // of the vectors before
  uint32_t equal = 0;
  for (int base = 0; base < listed; base += kStep) {
    if (base > 0) own = {slice, list, base + Shape::kListed * own_thread(), listed};
    const uint32_t own_larger = own.bits([&](uint32_t key) { return key > threshold.key; });
    const uint32_t own_equal =
        threshold.ties == 0 ? 0 : own.bits([&](uint32_t key) { return key == threshold.key; });
    __syncthreads();
    const Prefix prefix =
        prefix_sum(shared.warp_sums, __popc(own_larger) + (__popc(own_equal) << 16));
    uint32_t ties = equal + (prefix.before >> 16);
    uint32_t at = larger + (prefix.before & 0xffffu) + min(ties, threshold.ties);
    for (uint32_t left = own_larger | own_equal; left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const bool is_tie = (own_equal >> bit & 1) != 0;
      if (!is_tie || ties < threshold.ties) places[at++] = own.place(bit);
      ties += is_tie ? 1 : 0;
    }
    larger += prefix.total & 0xffffu;
    equal += prefix.total >> 16;
  }
  __syncthreads();
  return larger + min(equal, threshold.ties);
}

/// Writes the `count` selected `places` of a slice that begins at place `begin` of the row: what
/// they stand for, and their keys too unless this is the row's last round.
template <class Shape>
__device__ void write_selected(
    const TopKCall& call,
    int64_t row,
    int begin,
    bool last,
    const Slice<Shape>& slice,
    const int32_t* places,
    uint32_t count
) {
  const int64_t chunk_row = blockIdx.x;
  const int64_t kept_at = chunk_row * call.kept.stride + blockIdx.y * call.width;
  int32_t* values = last ? call.out + row * call.k : call.kept.values + kept_at;
  uint16_t* kept = call.kept.keys + kept_at;
  const auto end = static_cast<uint32_t>(last ? call.k : call.width);
  for (uint32_t i = threadIdx.x; i < end; i += Shape::kThreads) {
    const bool is_selected = i < count;
    if (last || is_selected) {
      values[i] = is_selected ? call.value(row, chunk_row, begin + places[i]) : -1;
    }
    if (!last) kept[i] = is_selected ? slice.key(places[i]) : uint16_t{0};
  }
}

/// What a slice's threads share: its list of vectors, and k places behind.
template <class Shape>
struct SliceMemory {
  Selector<Shape::kThreads> selector;
  uint16_t list[Shape::kThreads * Shape::kBests];
};

/// Block x takes the row, block y the slice; no row has more than `most` places.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kCtas)
    keep_best(const __grid_constant__ TopKCall call, int most) {
  extern __shared__ uint4 raw[];
  auto& shared = *reinterpret_cast<SliceMemory<Shape>*>(raw);
  auto* places = reinterpret_cast<int32_t*>(&shared + 1);
  Selector<Shape::kThreads>& selector = shared.selector;
  const int begin = static_cast<int>(blockIdx.y) * Shape::kPlaces;
  const int64_t chunk_row = blockIdx.x;
  const int64_t row = call.index.scores.first_row + chunk_row;
  for (int i = own_thread(); i < Selector<Shape::kThreads>::kBins / 4; i += Shape::kThreads)
    selector.counts[i] = {};
  wait_for_previous_kernels();
  Slice<Shape> slice(call.from, chunk_row, begin, most - begin);
  const int count = call.count(row);
  if (count < 0 || (begin > 0 && begin >= count)) return;
  slice.forget_behind(count - begin);
  slice.newest = call.newest(count) - begin;
  const auto k = static_cast<uint32_t>(call.k);
  const uint32_t top = slice.top(selector);
  const uint32_t floor = slice.floor(selector, top, k);
  const int listed = slice.list(selector, floor, shared.list);
  using Listed = ListedVectors<Shape::kListed>;
  const Listed first(slice, shared.list, Shape::kListed * own_thread(), listed);
  const bool has_newest = slice.newest >= 0 && slice.newest < Shape::kPlaces;
  Threshold threshold{top, 0};  // the newest alone is above
  if (k > (has_newest ? 1 : 0)) {
    const uint32_t wanted = k - (has_newest ? 1 : 0);
    threshold = find_threshold(selector, top, floor, wanted, [&](const auto& visit) {
      const auto visit_all = [&](const Listed& own) {
        for (const uint4& keys : own.keys)
          visit_keys(keys, [&](int, uint32_t key) { visit(key); });
      };
      visit_all(first);
      for (int base = Shape::kStep; base < listed; base += Shape::kStep)
        visit_all(Listed(slice, shared.list, base + Shape::kListed * own_thread(), listed));
    });
  }
  const uint32_t found =
      find_places(selector, slice, shared.list, listed, first, threshold, places);
  write_selected(call, row, begin, count <= Shape::kPlaces, slice, places, found);
}

/// The best key of every block of a row; zeros up to a whole vector.
__global__ void best_of_blocks(IndexCall call, uint16_t* keys, int64_t stride) {
  const int64_t chunk_row = blockIdx.y;
  const int visible = call.visible(call.scores.first_row + chunk_row);
  const int blocks = (visible + call.block_size - 1) / call.block_size;
  const uint16_t* scores = call.scores.keys + chunk_row * call.scores.stride;
  const int end = (blocks + kVectorKeys - 1) / kVectorKeys * kVectorKeys;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int block = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); block < end;
       block += step) {
    const int first = block * call.block_size;
    const int count = min(call.block_size, visible - first);
    uint32_t best = 0;
    for (int i = 0; i < count; ++i)
      best = max(best, uint32_t{scores[first + i]});
    keys[chunk_row * stride + block] = static_cast<uint16_t>(best);
  }
}

/// The best keys of candidate blocks: what the scores came with where a block is a vector.
KeyRows block_keys(Exec& exec, const TopKCall& call, int64_t blocks) {
  const IndexScores& scores = call.index.scores;
  if (call.index.block_size == kVectorKeys)
    return {.keys = scores.bests, .stride = scores.stride / kVectorKeys};
  const int64_t stride = (blocks + kVectorKeys - 1) / kVectorKeys * kVectorKeys;
  auto* keys = exec.scratch.take<uint16_t>(scores.rows * stride);
  constexpr int kBlockThreads = 256;
  const dim3 grid(
      std::clamp(blocks_of(blocks, kBlockThreads), 1u, 256u), static_cast<unsigned int>(scores.rows)
  );
  best_of_blocks<<<grid, kBlockThreads, 0, exec.stream>>>(call.index, keys, stride);
  check_launch("index_select: block maxima");
  return {.keys = keys, .stride = stride};
}

KeptPlaces kept_places(Arena& scratch, int64_t rows, int64_t stride) {
  return {scratch.take<uint16_t>(rows * stride), scratch.take<int32_t>(rows * stride), stride};
}

template <class Shape>
void launch_round(Exec& exec, const TopKCall& call, int64_t slices, int64_t places) {
  auto* kernel = &keep_best<Shape>;
  constexpr int kShared = sizeof(SliceMemory<Shape>);
  constexpr int kPlaceBytes = sizeof(int32_t);
  static const int allowed = allow_shared_memory(kernel, kShared + kMaxTopK * kPlaceBytes);
  static_cast<void>(allowed);
  const dim3 grid(
      static_cast<unsigned int>(call.index.scores.rows), static_cast<unsigned int>(slices)
  );
  launch_overlapped(
      "index_select: top-k",
      kernel,
      grid,
      Shape::kThreads,
      kShared + call.k * kPlaceBytes,
      exec.stream,
      call,
      static_cast<int>(places)
  );
}

/// All rounds of a selection among up to `places` places of a row.
void keep_best_of_all(Exec& exec, TopKCall call, int64_t places) {
  if (call.k == 0) return;
  const Arena::Scope scope(exec.scratch);
  call.width = (call.k + kVectorKeys - 1) / kVectorKeys * kVectorKeys;
  for (call.round = 0;; ++call.round) {
    const bool small = places <= SmallSlice::kPlaces;
    const int64_t slice = small                            ? SmallSlice::kPlaces
                          : places <= MediumSlice::kPlaces ? MediumSlice::kPlaces
                                                           : LargeSlice::kPlaces;
    const int64_t slices = std::max<int64_t>(1, (places + slice - 1) / slice);
    call.slices[call.round] = static_cast<int>(slice);
    if (slices > 1)
      call.kept = kept_places(exec.scratch, call.index.scores.rows, slices * call.width);
    if (small && call.index.scores.rows >= kManyRows * num_sms()) {
      launch_round<NarrowSlice>(exec, call, slices, places);
    } else if (small) {
      launch_round<SmallSlice>(exec, call, slices, places);
    } else if (slice == MediumSlice::kPlaces) {
      launch_round<MediumSlice>(exec, call, slices, places);
    } else {
      launch_round<LargeSlice>(exec, call, slices, places);
    }
    if (slices == 1) return;
    places = slices * call.width;
    call.from = {.keys = call.kept.keys, .stride = call.kept.stride};
    call.values = call.kept.values;
  }
}

}  // namespace

void select_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  TopKCall call;
  call.index = index_call(op, scores);
  call.from = {.keys = scores.keys, .bests = scores.bests, .stride = scores.stride};
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
  call.from = block_keys(exec, call, blocks);
  call.out = op.candidates_out.data;
  call.k = static_cast<int>(op.candidates_out.dim(1));
  keep_best_of_all(exec, call, blocks);
}

}  // namespace di::ops::cuda
