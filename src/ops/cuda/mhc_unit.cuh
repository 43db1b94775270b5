// One warp's share of a hyper-connection site: a unit of 32 channels of all four streams, for 8 or
// 16 rows.
//
// The 24-row projection runs on the tensor cores: the streams are bf16, and an fp32 number of fn is
// the sum of three bf16 (mhc_fn.h). The chains are short, 32 products of one stream and block of
// channels, and what is added behind them is added in an order that the hidden size alone decides.
#pragma once

#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/mhc_fn.h"
#include "ops/cuda/mhc_rows.cuh"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

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
  double inverse_hidden;
  float norm_eps;
};

/// 1 / √(mean + eps) for a mean of squares, which is rounded to fp32 first, as is the result.
__device__ inline float inverse_rms(double mean, float eps) {
  return static_cast<float>(rsqrt(static_cast<double>(static_cast<float>(mean) + eps)));
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

/// Σ of the squares of eight channels of all streams: fp32 within a stream.
__device__ inline double squares_of_streams(const uint4 (&h)[kStreams]) {
  float sums[kStreams] = {};
#pragma unroll
  for (int c = 0; c < kStreams; ++c) {
    float x[kVector];
    unpack(h[c], x);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      sums[c] = fmaf(x[i], x[i], sums[c]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
/// Σ of the squares of eight channels of x, in double.
__device__ inline double squares_of_vector(const uint4& vector) {
  float x[kVector];
  unpack(vector, x);
  double sums[2] = {};
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    sums[i % 2] += x[i] * x[i];
  return sums[0] + sums[1];
}

/// A lane's part of a unit of one stream of fn.
struct FnParts {
  uint4 at[3][3];  // [eight outputs][part]
};
constexpr int kFnVectors = 9 * 32;  ///< of all lanes

/// Adds the half `step` of a unit's channels to sums of 16 rows and 8 outputs.
__device__ inline void mma_step(
    float (&d)[4], const uint32_t (&rows)[4], const uint4& fn, int step
) {
  mma_bf16(d, rows, step == 0 ? fn.x : fn.z, step == 0 ? fn.y : fn.w);
}

/// What a unit adds up for some rows.
template <int kRows>
struct UnitSums {
  float mixes[kRows][kMixes];
  double squares[kRows][8];  ///< a lane's: those of h of the four lanes that share a row, then of x
};

/// Where piece `piece` of a row of 64 bytes lies in shared memory: who reads one piece of eight
/// rows finds them in different banks.
__device__ inline int piece_at(int row, int piece) {
  return piece ^ row / 2 % 4;
}

constexpr int kKeptStreams = 2;  ///< of fn, in registers

/// A warp's shared memory. Every lane copies what of fn and h it reads itself.
template <int kRows>
struct UnitMemory {
  uint4 fn[kStreams - kKeptStreams][kFnVectors];
  uint4 h[kStreams][kRows][4];  ///< pieces in the order of piece_at()
  float4 a[kRows];
  UnitSums<kRows> sums;
};

/// One warp at its unit, with the rows of one eight or two: a lane has a row in each.
template <int kHalves>
class SiteUnit {
 public:
  static constexpr int kRows = 8 * kHalves;
  using Memory = UnitMemory<kRows>;

  __device__ SiteUnit(const SiteArgs& op, Memory& memory, int unit)
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

  /// Asks for the streams of the rows from `first_row` on, and for what collapses them.
  __device__ void request(int first_row) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (first_row + half * 8 >= op_.rows) break;
      const int64_t row = min(first_row + this->row(half), op_.rows - 1);
#pragma unroll
      for (int c = 0; c < kStreams; ++c) {
        copy_async(piece(c, half), op_.h + (row * kStreams + c) * op_.hidden + channel_);
      }
      if (op_.a != nullptr && piece_ == 0)
        copy_async(&memory_.a[this->row(half)], op_.a + row * kStreams);
    }
  }

  /// Takes the streams that were asked for into registers.
  __device__ void take(int first_row) {
    wait_copies();
    __syncwarp();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int c = 0; c < kStreams && first_row + half * 8 < op_.rows; ++c)
        h_[c][half] = *piece(c, half);
    }
  }

  /// Collapses the streams taken.
  __device__ void collapse(int first_row) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (first_row + half * 8 < op_.rows) collapse_half(half);
    }
  }

  /// Adds up what the rows taken give, into the memory's sums.
  __device__ void add_up() {
    UnitSums<kRows>& sums = memory_.sums;
    float mixes[3][4] = {};
    __syncwarp();
#pragma unroll
    for (int stream = 0; stream < kStreams; ++stream) {
      if (stream < kKeptStreams) {
        add_chains(mixes, stream, kept_[stream]);
      } else {
        FnParts parts;
        load_parts(parts, &memory_.fn[stream - kKeptStreams][threadIdx.x % 32]);
        add_chains(mixes, stream, parts);
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
      uint4 h[kStreams];
#pragma unroll
      for (int c = 0; c < kStreams; ++c)
        h[c] = h_[c][half];
      sums.squares[at][piece_] = squares_of_streams(h);
      sums.squares[at][4 + piece_] = squares_of_vector(x_[half]);
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
  __device__ uint4* piece(int stream, int half) {
    return &memory_.h[stream][row(half)][piece_at(row(half), piece_)];
  }

  static __device__ void load_parts(FnParts& parts, const uint4* from) {
#pragma unroll
    for (int i = 0; i < 9; ++i)
      parts.at[i / 3][i % 3] = from[i * 32];
  }

  __device__ void collapse_half(int half) {
    const float4 a = memory_.a[row(half)];
    uint4 h[kStreams];
#pragma unroll
    for (int c = 0; c < kStreams; ++c)
      h[c] = h_[c][half];
    x_[half] = collapse_vector(h, {a.x, a.y, a.z, a.w});
  }

  /// Adds one stream's chains, each of six products, the least parts first. Of eight rows the
  /// second half of the products is never looked at.
  __device__ void add_chains(float (&mixes)[3][4], int stream, const FnParts& fn) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = lane % 8 + lane / 8 % kHalves * 8;
    uint32_t h[2][4];
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int at = piece_at(row, 2 * step + lane / 16);
      load_matrices(shared_address(&memory_.h[stream][row][at]), h[step]);
    }
    float chain[3][4] = {};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int n = 0; n < 3; ++n)
          mma_step(chain[n], h[step], fn.at[n][part], step);
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
  Memory& memory_;
  int unit_;
  int row_;
  int piece_;
  int channel_;
  FnParts kept_[kKeptStreams];
  uint4 h_[kStreams][kHalves] = {};
  uint4 x_[kHalves] = {};
};

/// A warp: Σ over the CTA's units of what a row adds up, in double. Lanes below kMixes get a mix,
/// the next four the squares of h, the last four those of x. sums_of(unit) is what a unit gave.
template <class SumsOf>
__device__ inline double sum_of_units(int count, int row, const SumsOf& sums_of) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  double sum = 0;
#pragma unroll 5
  for (int unit = 0; unit < count; ++unit) {
    const auto& sums = sums_of(unit);
    sum += lane < kMixes ? static_cast<double>(sums.mixes[row][lane])
                         : sums.squares[row][lane - kMixes];
  }
  const double of_four = sum_over_four(sum);
  return lane < kMixes ? sum : of_four;
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

/// One warp: a row's mixes m into shared memory `m` from its `count` sums over the groups, number
/// `which` of group g at sums[g · stride + which]. Returns in every lane the factor of the norm of
/// x, whose squares are sum number kSums, if there is one.
__device__ inline float finish_sums(
    const SiteArgs& op, const double* sums, int64_t stride, int count, float* m
) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double sum = sum_of_groups(sums + min(lane, count - 1), stride);
  const double share = lane == kSums ? op.inverse_hidden : op.inverse_hidden / kStreams;
  const float factor = inverse_rms(sum * share, op.norm_eps);
  const float of_mixes = __shfl_sync(0xffffffffu, factor, kMixes);
  if (lane < kMixes) m[lane] = static_cast<float>(sum) * of_mixes;
  __syncwarp();
  return __shfl_sync(0xffffffffu, factor, kSums);
}

}  // namespace di::ops::cuda
