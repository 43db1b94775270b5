// A slice of a row of order keys in a CTA: the best keys of its vectors in registers, from which a
// list of the vectors follows that can hold any of the k best, in the order of the places.
#pragma once

#include "ops/cuda/index_threshold.cuh"

namespace di::ops::cuda {

inline constexpr int kUnitVectors = 4;

/// How a CTA takes a slice of a row: a thread has kUnits times four neighbouring vectors. Of those
/// that are listed it takes kListed at a time, all threads kStep.
template <int kThreadCount, int kUnitCount, int kListedCount, int kCtaCount>
struct SliceShape {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kUnits = kUnitCount;
  static constexpr int kListed = kListedCount;
  static constexpr int kCtas = kCtaCount;               // of a multiprocessor, at least
  static constexpr int kBests = kUnits * kUnitVectors;  // of a thread
  static constexpr int kPlaces = kThreads * kBests * kVectorKeys;
  static constexpr int kStep = kThreads * kListed;
};
// Of these the first that holds a row, or the last.
using SmallSlice = SliceShape<512, 1, 2, 3>;
using MediumSlice = SliceShape<512, 4, 2, 2>;
using LargeSlice = SliceShape<512, 8, 2, 2>;
// As the first, for more rows than the device takes at once: later alone, but fewer instructions,
// as what a thread does beside its keys is done by half as many.
using NarrowSlice = SliceShape<256, 2, 3, 4>;
static_assert(NarrowSlice::kPlaces == SmallSlice::kPlaces);

/// Keys of rows, and the best of every vector of them.
struct KeyRows {
  const uint16_t* keys = nullptr;   // [rows, stride]
  const uint16_t* bests = nullptr;  // [rows, stride / 8]; nullptr: from the keys
  int64_t stride = 0;
};

/// Calls visit(i, key) for the eight keys of a vector.
template <class Visit>
__device__ inline void visit_keys(const uint4& vector, const Visit& visit) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < kVectorKeys; ++i)
    visit(i, i % 2 == 0 ? words[i / 2] & 0xffffu : words[i / 2] >> 16);
}

__device__ inline uint32_t larger_of(uint32_t pair) {
  return max(pair & 0xffffu, pair >> 16);
}

/// A slice of a row: the best keys of the thread's vectors in registers, two in each.
template <class Shape>
struct Slice {
  static constexpr int kUnits = Shape::kUnits;
  static constexpr int kBests = Shape::kBests;
  using Memory = Selector<Shape::kThreads>;

  const uint4* vectors;
  int newest;  ///< a place that is above all; none of the slice's: there is none
  uint32_t pairs[kBests / 2];

  __device__ static int first_vector() { return own_thread() * kBests; }
  __device__ uint32_t best(int i) const {
    return i % 2 == 0 ? pairs[i / 2] & 0xffffu : pairs[i / 2] >> 16;
  }
  __device__ uint32_t best_of_unit(int unit) const {
    return larger_of(__vmaxu2(pairs[2 * unit], pairs[2 * unit + 1]));
  }

  /// Begins to read the vectors of up to `most` places; forget_behind() must follow.
  __device__ Slice(const KeyRows& from, int64_t chunk_row, int64_t begin, int most)
      : vectors(reinterpret_cast<const uint4*>(from.keys + chunk_row * from.stride + begin)) {
    if (from.bests != nullptr) {
      const auto* units = reinterpret_cast<const uint2*>(
          from.bests + (chunk_row * from.stride + begin) / kVectorKeys
      );
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const int at = own_thread() * kUnits + unit;
        const uint2 two = at * kUnitVectors * kVectorKeys < most ? units[at] : uint2{};
        pairs[2 * unit] = two.x;
        pairs[2 * unit + 1] = two.y;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kBests; i += 2)
        pairs[i / 2] = best_of_vector(i, most) | best_of_vector(i + 1, most) << 16;
    }
  }

  /// Takes out what was read behind `count` places.
  __device__ void forget_behind(int count) {
    if ((first_vector() + kBests) * kVectorKeys <= count) return;
#pragma unroll
    for (int i = 0; i < kBests; i += 2) {
      if ((first_vector() + i) * kVectorKeys >= count) pairs[i / 2] = 0;
      if ((first_vector() + i + 1) * kVectorKeys >= count) pairs[i / 2] &= 0xffffu;
    }
  }

  /// The largest best key.
  __device__ uint32_t top(Memory& shared) const {
    uint32_t most = 0;
#pragma unroll
    for (const uint32_t pair : pairs)
      most = __vmaxu2(most, pair);
    return largest(shared.other_sums, larger_of(most));
  }

  /// A key that at least k of the slice's reach, unless it is 1.
  __device__ uint32_t floor(Memory& shared, uint32_t top, uint32_t k) const {
    const Threshold threshold = find_threshold(shared, top, 1, k, [&](const auto& visit) {
      if constexpr (Shape::kPlaces >= MediumSlice::kPlaces) {
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
          visit(best_of_unit(unit));
      } else {
#pragma unroll
        for (int i = 0; i < kBests; ++i)
          visit(best(i));
      }
    });
    return max(threshold.key, 1u);
  }

  /// Lists the vectors whose best key is at least `floor` in order; returns how many.
  __device__ int list(Memory& shared, uint32_t floor, uint16_t* list) const {
    uint32_t listed = 0;  // a bit each
#pragma unroll
    for (int i = 0; i < kBests; ++i)
      listed |= best(i) >= floor ? 1u << i : 0;
    const int own_newest = (newest >> 3) - first_vector();
    if (own_newest >= 0 && own_newest < kBests) listed |= 1u << own_newest;
    const Prefix prefix = prefix_sum(shared.other_sums, __popc(listed));
    list += prefix.before;
    for (; listed != 0; listed &= listed - 1)
      *list++ = static_cast<uint16_t>(first_vector() + __ffs(static_cast<int>(listed)) - 1);
    __syncthreads();
    return static_cast<int>(prefix.total);
  }

  /// The keys of a vector.
  __device__ uint4 load(int vector) const {
    uint4 keys = vectors[vector];
    if (vector == newest >> 3) {
      const uint32_t mask = newest % 2 == 0 ? 0xffffu : 0xffff0000u;
      const int word = newest % kVectorKeys / 2;
      keys.x |= word == 0 ? mask : 0;
      keys.y |= word == 1 ? mask : 0;
      keys.z |= word == 2 ? mask : 0;
      keys.w |= word == 3 ? mask : 0;
    }
    return keys;
  }
  __device__ uint16_t key(int place) const {
    return place == newest ? kFirstOfAll : reinterpret_cast<const uint16_t*>(vectors)[place];
  }

 private:
  __device__ uint32_t best_of_vector(int i, int most) const {
    const int vector = first_vector() + i;
    return vector * kVectorKeys < most ? best_key(vectors[vector]) : 0;
  }
};

/// Neighbours of a list of vectors, which a thread takes at a time.
template <int kCount>
struct ListedVectors {
  int vector[kCount];
  uint4 keys[kCount];

  template <class Shape>
  __device__ ListedVectors(const Slice<Shape>& slice, const uint16_t* list, int at, int listed) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool exists = at + i < listed;
      vector[i] = exists ? list[at + i] : 0;
      keys[i] = exists ? slice.load(vector[i]) : uint4{};
    }
  }
  /// A bit for each key of which is_so(key).
  template <class IsSo>
  __device__ uint32_t bits(const IsSo& is_so) const {
    uint32_t bits = 0;
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      visit_keys(keys[v], [&](int i, uint32_t key) {
        bits |= is_so(key) ? 1u << (kVectorKeys * v + i) : 0;
      });
    }
    return bits;
  }
  __device__ int place(int bit) const {
    int own = vector[0];
#pragma unroll
    for (int v = 1; v < kCount; ++v)
      own = bit < kVectorKeys * v ? own : vector[v];
    return own * kVectorKeys + bit % kVectorKeys;
  }
};

}  // namespace di::ops::cuda
