// One warp's share of a hyper-connection site: 32 channels of all four streams, for a tile of rows.
//
// The 24-row projection runs on the tensor cores: the streams are bf16, and an fp32 number of fn is
// the sum of three bf16. The chains are short, 32 products of one stream and block of channels, and
// what is added behind them is added in an order that the hidden size alone decides.
#pragma once

#include "ops/cuda/mhc_rows.cuh"

namespace di::ops::cuda {

inline constexpr int kUnit = 32;      ///< channels of a warp: a Q8 group, and the length of a chain
inline constexpr int kGroups = 16;    ///< a CTA takes one such share of the units
inline constexpr int kMaxUnits = 10;  ///< of a group
inline constexpr int kSums = kMixes + 1;  ///< the projection, and the squares of h

/// Operands of a site.
struct SiteArgs {
  MixArgs mix;
  const bf16* h;
  const float* fn;
  const float* a;  ///< nullptr: the mixes alone
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
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)
  );
}

__device__ inline void copy_async(void* shared, const void* global) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(shared))
      ),
      "l"(global)
  );
}
__device__ inline void prefetch(const void* global) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(global));
}
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// A lane's part of a unit of one stream of fn: of each eight outputs number lane / 4, the eight
/// channels from 8 · (lane mod 4) on.
struct FnPiece {
  float4 at[3][2];  // [eight outputs][half of the channels]
};

/// Eight outputs of it for the tensor cores: an fp32 number in three bf16 parts, the least first.
struct FnParts {
  uint32_t pair[3][4];  // [part][pair of channels]
};

__device__ inline FnParts split(const float4 (&fn)[2]) {
  FnParts parts;
  const float x[8] = {fn[0].x, fn[0].y, fn[0].z, fn[0].w, fn[1].x, fn[1].y, fn[1].z, fn[1].w};
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    float low = x[2 * p];
    float high = x[2 * p + 1];
#pragma unroll
    for (int part = 2; part >= 0; --part) {
      const uint32_t pair = round_pair(low, high);
      parts.pair[part][p] = pair;
      low -= low_float(pair);
      high -= high_float(pair);
    }
  }
  return parts;
}

/// A warp's shared memory for a tile of 16 · kRowTiles rows: the unit of each stream, 64 bytes a
/// row. Every lane copies what it reads itself. When the streams are used up, the first one's place
/// holds x, and the others' the warp's sums.
template <int kRowTiles>
struct UnitMemory {
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kStreamBytes = kRows * kUnit * 2;
  static constexpr int kBytes = kStreams * kStreamBytes;

  static __device__ char* x(char* unit, int row, int vector) {
    return unit + row * 64 + vector * 16;
  }
  static __device__ float* mixes(char* unit) {  // [rows, 24]
    return reinterpret_cast<float*>(unit + kStreamBytes);
  }
  static __device__ double* h_squares(char* unit) {  // [rows]
    return reinterpret_cast<double*>(unit + 3 * kStreamBytes);
  }
  static __device__ double* x_squares(char* unit) {  // [rows]
    return h_squares(unit) + kRows;
  }
};

/// What a warp adds up over the streams for its rows.
template <int kRowTiles>
struct UnitSums {
  float mixes[kRowTiles][3][4] = {};
  float h_squares[kRowTiles][2] = {};
};

/// Adds one stream. `place` is this lane's in it; refill(n) is called when fn.at[n] is used up.
template <int kRowTiles, class Refill>
__device__ inline void add_stream(
    UnitSums<kRowTiles>& sums, const char* place, const FnPiece& fn, const Refill& refill
) {
  uint4 rows[kRowTiles][2];
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[tile][half] = *reinterpret_cast<const uint4*>(place + tile * 1024 + half * 512);
      float values[kVector];
      unpack(rows[tile][half], values);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sums.h_squares[tile][half] = fmaf(values[i], values[i], sums.h_squares[tile][half]);
    }
  }
  constexpr int kTogether =
      kRowTiles == 1 ? 3 : 1;  // eights of outputs whose chains run side by side
#pragma unroll
  for (int first = 0; first < 3; first += kTogether) {
    FnParts parts[kTogether];
    float chain[kTogether][kRowTiles][4] = {};
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      parts[n] = split(fn.at[first + n]);
      refill(first + n);
    }
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int n = 0; n < kTogether; ++n) {
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            const uint4& top = rows[tile][0];
            const uint4& bottom = rows[tile][1];
            const uint32_t a[4] = {
                step == 0 ? top.x : top.z,
                step == 0 ? bottom.x : bottom.z,
                step == 0 ? top.y : top.w,
                step == 0 ? bottom.y : bottom.w};
            const uint32_t* b = parts[n].pair[part] + 2 * step;
            mma(chain[n][tile], a, b[0], b[1]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums.mixes[tile][first + n][i] += chain[n][tile][i];
      }
    }
  }
}

/// Collapses the four streams into the first one's place, and gives Σ x² over this lane's channels.
template <class Memory>
__device__ inline double collapse_row(char* place, const float* a, int row) {
  const float4 weights = __ldg(reinterpret_cast<const float4*>(a) + row);
  const float by_stream[kStreams] = {weights.x, weights.y, weights.z, weights.w};
  uint4 h[kStreams];
#pragma unroll
  for (int c = 0; c < kStreams; ++c)
    h[c] = *reinterpret_cast<const uint4*>(place + c * Memory::kStreamBytes);
  const uint4 result = collapse_vector(h, by_stream);
  *reinterpret_cast<uint4*>(place) = result;
  float x[kVector];
  unpack(result, x);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    sum += x[i] * x[i];
  return sum;
}

/// Sum over the four lanes that share a row.
template <class T>
__device__ inline T sum_over_four(T x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// One warp: streams its unit in, projects, collapses, and leaves x and the sums in its memory.
template <int kRowTiles>
__device__ inline void run_unit(const SiteArgs& op, char* unit, int first_row, int first_channel) {
  using Memory = UnitMemory<kRowTiles>;
  const int lane = threadIdx.x % 32;
  const int row = lane / 4;
  const int64_t width = int64_t{kStreams} * op.hidden;
  const int channel = first_channel + lane % 4 * kVector;
  const float* fn_place = op.fn + row * width + channel;
  char* mine = unit + row * 64 + lane % 4 * 16;
  const int last_row = op.rows - 1;
  if (op.a != nullptr) {  // wanted at the end
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i)
      prefetch(op.a + kStreams * min(first_row + row + i * 8, last_row));
    prefetch(op.norm + channel);
  }

#pragma unroll 1
  for (int stream = 0; stream < kStreams; ++stream) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int from = min(first_row + row + i * 8, last_row);
      copy_async(
          mine + stream * Memory::kStreamBytes + i * 512,
          op.h + from * width + stream * op.hidden + channel
      );
    }
  }
  FnPiece fn;
  const auto load_fn = [&](int stream, int n) {
    const auto* from =
        reinterpret_cast<const float4*>(fn_place + n * 8 * width + stream * op.hidden);
    fn.at[n][0] = __ldg(from);
    fn.at[n][1] = __ldg(from + 1);
  };
#pragma unroll
  for (int n = 0; n < 3; ++n)
    load_fn(0, n);
  wait_copies();
  UnitSums<kRowTiles> sums;
#pragma unroll 1
  for (int stream = 0; stream < kStreams; ++stream) {
    add_stream(sums, mine + stream * Memory::kStreamBytes, fn, [&](int n) {
      if (stream + 1 < kStreams) load_fn(stream + 1, n);
    });
  }

  double x_squares[2 * kRowTiles] = {};
  if (op.a != nullptr) {
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int at = min(first_row + row + i * 8, last_row);
      x_squares[i] = collapse_row<Memory>(mine + i * 512, op.a, at);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int at = row + i * 8;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      *reinterpret_cast<float2*>(Memory::mixes(unit) + at * kMixes + n * 8 + lane % 4 * 2) = {
          sums.mixes[i / 2][n][i % 2 * 2], sums.mixes[i / 2][n][i % 2 * 2 + 1]};
    }
    const double h = sum_over_four(static_cast<double>(sums.h_squares[i / 2][i % 2]));
    const double x = sum_over_four(x_squares[i]);
    if (lane % 4 == 0) {
      Memory::h_squares(unit)[at] = h;
      Memory::x_squares(unit)[at] = x;
    }
  }
}

/// Σ over the CTA's units of number `which` of a row, in double: a mix, or (kMixes) the squares of
/// h.
template <class Memory>
__device__ inline double group_sum(char* units, int row, int which) {
  double sum = 0;
#pragma unroll 5
  for (int unit = 0; unit < static_cast<int>(blockDim.x / 32); ++unit) {
    char* memory = units + unit * Memory::kBytes;
    sum += which < kMixes ? static_cast<double>(Memory::mixes(memory)[row * kMixes + which])
                          : Memory::h_squares(memory)[row];
  }
  return sum;
}

/// The same of the squares of x.
template <class Memory>
__device__ inline double group_x_sum(char* units, int row) {
  double sum = 0;
#pragma unroll 5
  for (int unit = 0; unit < static_cast<int>(blockDim.x / 32); ++unit)
    sum += Memory::x_squares(units + unit * Memory::kBytes)[row];
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
    const SiteArgs& op, const uint4& vector, float factor, int64_t row, int channel, bool is_one
) {
  float x[kVector];
  float weights[kVector];
  unpack(vector, x);
  unpack(load_vector(op.norm + channel), weights);
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

/// Warp 0 makes comb of one row, and any other warp pre and post, from the row's sums over the
/// groups: number `which` of group g at sums[g · group_stride + which]. `m` is shared memory for 24
/// numbers of the warp; row < 0 writes nothing.
__device__ inline void finish_row(
    const SiteArgs& op, const double* sums, int64_t group_stride, float* m, int64_t row
) {
  const int lane = threadIdx.x % 16;
  const double squares = sum_of_groups(sums + kMixes, group_stride);
  const double first = sum_of_groups(sums + lane, group_stride);
  const double second = sum_of_groups(sums + 16 + lane % 8, group_stride);
  const float factor = inverse_rms_of_sum(squares, int64_t{kStreams} * op.hidden, op.norm_eps);
  const int64_t written = threadIdx.x % 32 < 16 ? row : -1;
  m[lane] = static_cast<float>(first) * factor;
  if (lane < 8) m[16 + lane] = static_cast<float>(second) * factor;
  __syncwarp();
  if (threadIdx.x < 32) {
    finish_comb(op.mix, m, written);
  } else {
    finish_gates(op.mix, m, written);
  }
}

}  // namespace di::ops::cuda
