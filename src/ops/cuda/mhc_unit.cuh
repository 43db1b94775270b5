// One warp's share of a hyper-connection site: a unit of 32 channels of all four streams, for tiles
// of 16 rows.
//
// The 24-row projection runs on the tensor cores: the streams are bf16, and an fp32 number of fn is
// the sum of three bf16 (mhc_fn.h). The chains are short, 32 products of one stream and block of
// channels, and what is added behind them is added in an order that the hidden size alone decides.
#pragma once

#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/mhc_fn.h"
#include "ops/cuda/mhc_rows.cuh"

namespace di::ops::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kHalves = 2;         ///< a lane has a row in each eight of a tile
inline constexpr int kSums = kMixes + 1;  ///< the projection, and the squares of h

/// Operands of a site.
struct SiteArgs {
  MixArgs mix;
  const bf16* h;
  const uint4* fn;  ///< packed
  const float* a;   ///< nullptr: the mixes alone
  const bf16* norm;
  bf16* x;
  uint8_t* codes;
  uint8_t* scales;
  int rows;
  int hidden;
  float norm_eps;
};

/// D += A · B for 16 rows, 8 outputs and 16 channels.
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same for the half `step` of eight channels a lane: rows lane / 4 and that plus 8.
__device__ inline void mma_step(
    float (&d)[4], const uint4& top, const uint4& bottom, const uint4& fn, int step
) {
  const uint32_t low[4] = {top.x, bottom.x, top.y, bottom.y};
  const uint32_t high[4] = {top.z, bottom.z, top.w, bottom.w};
  if (step == 0) {
    mma(d, low, fn.x, fn.y);
  } else {
    mma(d, high, fn.z, fn.w);
  }
}

/// Sum over the four lanes that share a row.
template <class T>
__device__ inline T sum_over_four(T x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ inline void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))
               ),
               "l"(global)
               : "memory");
}
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// A lane's part of a unit of one stream of fn.
struct FnParts {
  uint4 at[3][3];  // [eight outputs][part], 8 channels
};
constexpr int kFnVectors = 9 * 32;  ///< of all lanes

/// What a unit adds up for the rows of a tile.
struct UnitSums {
  float mixes[kTileRows][kMixes];
  double h_squares[kTileRows];
  double x_squares[kTileRows];
};

constexpr int kKeptStreams = 2;  ///< of fn, in registers

/// A warp's shared memory. Every lane copies what of fn and h it reads itself.
struct UnitMemory {
  uint4 fn[kStreams - kKeptStreams][kFnVectors];
  uint4 h[kStreams][kTileRows][4];
  float4 a[kTileRows];
  UnitSums sums;
};

/// One warp at its unit.
class SiteUnit {
 public:
  __device__ SiteUnit(const SiteArgs& op, UnitMemory& memory, int unit)
      : op_(op),
        memory_(memory),
        unit_(unit),
        row_(static_cast<int>(threadIdx.x) % 32 / 4),
        piece_(static_cast<int>(threadIdx.x) % 4),
        channel_(unit * kUnit + piece_ * kVector) {}

  /// Brings the unit's share of fn, which no kernel writes.
  __device__ void bring_fn() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint4* fn = op_.fn + int64_t{unit_} * kStreams * kFnVectors + lane;
#pragma unroll
    for (int stream = 0; stream < kKeptStreams; ++stream)
      load_parts(kept_[stream], fn + stream * kFnVectors);
    fn += kKeptStreams * kFnVectors;
#pragma unroll
    for (int i = 0; i < (kStreams - kKeptStreams) * 9; ++i)
      copy_async(&memory_.fn[0][0] + i * 32 + lane, fn + i * 32);
  }

  /// Takes the rows from `first_row` on: their streams and x, which stay in registers.
  __device__ void take(int first_row) {
    request(first_row);
    wait_copies();
    __syncwarp();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (first_row + half * 8 < op_.rows) take_half(half);
    }
  }

  /// Adds up what the rows taken give, into the memory's sums.
  __device__ void add_up() {
    UnitSums& sums = memory_.sums;
    float mixes[3][4] = {};
    float squares[kHalves] = {};
#pragma unroll
    for (int stream = 0; stream < kStreams; ++stream) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        float h[kVector];
        unpack(h_[stream][half], h);
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          squares[half] = fmaf(h[i], h[i], squares[half]);
      }
      if (stream < kKeptStreams) {
        add_chains(mixes, h_[stream], kept_[stream]);
      } else {
        FnParts parts;
        load_parts(parts, &memory_.fn[stream - kKeptStreams][threadIdx.x % 32]);
        add_chains(mixes, h_[stream], parts);
      }
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int at = row_ + half * 8;
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        *reinterpret_cast<float2*>(&sums.mixes[at][n * 8 + piece_ * 2]) = {
            mixes[n][half * 2], mixes[n][half * 2 + 1]};
      }
      const double h = sum_over_four(static_cast<double>(squares[half]));
      const double x = sum_over_four(x_squares_[half]);
      if (piece_ == 0) sums.h_squares[at] = h;
      if (piece_ == 0) sums.x_squares[at] = x;
    }
  }

  /// This lane's row in each half of a tile, its channels, and x there.
  __device__ int row(int half) const {
    return row_ + half * 8;
  }
  __device__ int channel() const {
    return channel_;
  }
  __device__ const uint4& x(int half) const {
    return x_[half];
  }

 private:
  static __device__ void load_parts(FnParts& parts, const uint4* from) {
#pragma unroll
    for (int i = 0; i < 9; ++i)
      parts.at[i / 3][i % 3] = from[i * 32];
  }

  /// Asks for the rows from `first_row` on.
  __device__ void request(int first_row) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (first_row + half * 8 >= op_.rows) break;
      const int at = row_ + half * 8;
      const int64_t row = min(first_row + at, op_.rows - 1);
#pragma unroll
      for (int c = 0; c < kStreams; ++c)
        copy_async(&memory_.h[c][at][piece_], op_.h + (row * kStreams + c) * op_.hidden + channel_);
      if (op_.a != nullptr && piece_ == 0) copy_async(&memory_.a[at], op_.a + row * kStreams);
    }
  }

  __device__ void take_half(int half) {
    const int at = row(half);
    uint4 h[kStreams];
#pragma unroll
    for (int c = 0; c < kStreams; ++c)
      h[c] = memory_.h[c][at][piece_];
#pragma unroll
    for (int c = 0; c < kStreams; ++c)
      h_[c][half] = h[c];
    if (op_.a == nullptr) return;
    const float4 a = memory_.a[at];
    x_[half] = collapse_vector(h, {a.x, a.y, a.z, a.w});
    float x[kVector];
    unpack(x_[half], x);
    x_squares_[half] = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      x_squares_[half] += x[i] * x[i];
  }

  /// Adds one stream's chains, each of six products, the least parts first.
  static __device__ void add_chains(
      float (&mixes)[3][4], const uint4 (&h)[kHalves], const FnParts& fn
  ) {
    float chain[3][4] = {};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int n = 0; n < 3; ++n)
          mma_step(chain[n], h[0], h[1], fn.at[n][part], step);
      }
    }
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mixes[n][i] += chain[n][i];
    }
  }

  const SiteArgs& op_;
  UnitMemory& memory_;
  int unit_;
  int row_;
  int piece_;
  int channel_;
  FnParts kept_[kKeptStreams];
  uint4 h_[kStreams][kHalves] = {};
  uint4 x_[kHalves] = {};
  double x_squares_[kHalves] = {};
};

/// Σ over the CTA's units of number `which` of a row, in double: a mix, the squares of h (kMixes),
/// or those of x. sums_of(unit) is what a unit has added up.
template <class SumsOf>
__device__ inline double sum_of_units(int count, int row, int which, const SumsOf& sums_of) {
  double sum = 0;
#pragma unroll 5
  for (int unit = 0; unit < count; ++unit) {
    const auto& sums = sums_of(unit);
    sum += which < kMixes    ? static_cast<double>(sums.mixes[row][which])
           : which == kMixes ? sums.h_squares[row]
                             : sums.x_squares[row];
  }
  return sum;
}

/// Σ over the groups, whose sums lie `stride` apart.
__device__ inline double sum_of_groups(const double* sums, int64_t stride) {
  double sum = 0;
#pragma unroll
  for (int group = 0; group < kGroups; ++group)
    sum += sums[group * stride];
  return sum;
}

/// Norms eight channels of a row of x and gives them their Q8 form; all lanes of a warp call it,
/// four neighbours for one group. Nothing is written unless `is_one`.
__device__ inline void finish_vector(
    const SiteArgs& op,
    const uint4& vector,
    const uint4& norm,
    float factor,
    int64_t row,
    int channel,
    bool is_one
) {
  float x[kVector];
  float weights[kVector];
  unpack(vector, x);
  unpack(norm, weights);
#pragma unroll
  for (int k = 0; k < kVector; ++k)
    x[k] = weights[k] * (x[k] * factor);
  const uint4 rounded = pack(x);
  unpack(rounded, x);
  const Q8Vector q8 = quantize_q8(x);
  if (!is_one) return;
  const int64_t at = row * op.hidden + channel;
  store_vector(op.x + at, rounded);
  *reinterpret_cast<uint2*>(op.codes + at) = q8.codes;
  if (channel % kUnit == 0) op.scales[at / kUnit] = q8.scale;
}

/// One warp: a row's mixes m from its sums over the groups (number `which` of group g at
/// sums[g · group_stride + which]) into shared memory `m`.
__device__ inline void finish_mixes(
    const SiteArgs& op, const double* sums, int64_t group_stride, float* m
) {
  const int lane = threadIdx.x % 16;
  const double squares = sum_of_groups(sums + kMixes, group_stride);
  const double first = sum_of_groups(sums + lane, group_stride);
  const double second = sum_of_groups(sums + 16 + lane % 8, group_stride);
  const float factor = inverse_rms_of_sum(squares, int64_t{kStreams} * op.hidden, op.norm_eps);
  if (threadIdx.x % 32 < 16) m[lane] = static_cast<float>(first) * factor;
  if (threadIdx.x % 32 < 8) m[16 + lane] = static_cast<float>(second) * factor;
  __syncwarp();
}

}  // namespace di::ops::cuda
