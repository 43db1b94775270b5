// The linears' kernel for few tokens: y[tokens, rows] = x[tokens, cols] · Wᵀ, memory-bound.
//
// A strip is 16 rows. Each warp multiplies one slice of the columns of one strip; the warps of a
// CTA are all slices of a few strips, so that the slices' sums meet in shared memory. A lane loads
// its part of the A fragments straight to registers, some chunks ahead: no barrier stands between
// memory and tensor cores, and the first loads leave before the kernels that write the activations
// have ended. Activations lie in shared memory, [chunk][token] lines of 64 columns, swizzled.
#pragma once

#include "ops/cuda/linear_output.cuh"
#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// Rows of a strip: what a warp multiplies.
inline constexpr int kStripRows = 16;
inline constexpr int kMaxNarrowWarps = 20;
inline constexpr int kMaxNarrowTokens = 8;
inline constexpr int kMaxNarrowProducts = 4;

/// One product of a launch.
struct NarrowProduct {
  LinearArgs args;
  int strips;     ///< of a CTA
  int first_cta;  ///< of the grid
};

/// A launch: the products' CTAs follow each other.
struct NarrowSet {
  NarrowProduct products[kMaxNarrowProducts];
  int count;
};

/// Sixteen bytes of weights, which stream through once.
__device__ inline uint4 load_streaming(const std::byte* from, uint64_t policy) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from), "l"(policy));
  return value;
}
/// Asks for a line of memory to come to the second-level cache.
__device__ inline void prefetch_line(const std::byte* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
__device__ inline uint64_t streaming_policy() {
  uint64_t policy = 0;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// A lane's weights of one slice of a strip, on their way through registers.
template <WeightFormat kFormat>
class StripWeights {
 public:
  static constexpr int kPieces = kFormat == WeightFormat::kFp8 ? 2 : 4;  // of 16 bytes, in a chunk
  static constexpr int kAhead = kFormat == WeightFormat::kFp8 ? 4 : 2;   // chunks under way
  static constexpr int kPrefetched = 4;  // that then come to the cache early; more are slower

  __device__ StripWeights(const LinearArgs& args, int strip, int first_chunk, int chunks, int lane)
      : policy_(streaming_policy()), left_(chunks), words_left_(chunks), lane_(lane) {
    const int64_t number = static_cast<int64_t>(strip / 4) * args.chunks + first_chunk;
    const std::byte* block = args.weights + number * block_bytes(kFormat);
    from_ = block + 512 * (strip % 4) + 16 * lane;
    words_ = block + 2048 * kPieces + static_cast<int64_t>(lane) * block_bytes(kFormat);
    half_ = strip % 4 / 2 * 16;
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot)
      load(slot);
    load_words();
    // Four lines of 128 bytes a piece, a lane each.
    const int last = 4 * kPieces * min(chunks, kAhead + kPrefetched);
    for (int i = 4 * kPieces * kAhead + lane; i < last; i += 32) {
      const int piece = i / 4;
      prefetch_line(
          block + piece / kPieces * block_bytes(kFormat) + piece % kPieces * 2048 +
          512 * (strip % 4) + 128 * (i % 4)
      );
    }
  }

  /// Asks for the next chunk, if there is one.
  __device__ void load(int slot) {
    if (left_-- <= 0) return;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      pieces_[slot][i] = load_streaming(from_ + 2048 * i, policy_);
    from_ += block_bytes(kFormat);
  }

  /// The A fragments of the slice's chunk number `chunk`, which lies in `slot`: registers [product
  /// of 16 columns][4]. Every chunk in turn.
  __device__ void unpack(int slot, int chunk, uint32_t (&a)[4][4]) {
    if constexpr (kFormat == WeightFormat::kFp8) {
      if (chunk % 32 == 0 && chunk != 0) load_words();
      const uint32_t m = __shfl_sync(0xffffffffu, word_, chunk % 32);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        unpack_fp8_group(pieces_[slot][i], m >> 8 * i & 255, a[2 * i], a[2 * i + 1]);
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        a[k][0] = pieces_[slot][k].x;
        a[k][1] = pieces_[slot][k].y;
        a[k][2] = pieces_[slot][k].z;
        a[k][3] = pieces_[slot][k].w;
      }
    }
  }

 private:
  /// The multipliers of 32 chunks, one chunk a lane.
  __device__ void load_words() {
    if constexpr (kFormat != WeightFormat::kFp8) return;
    if (lane_ < words_left_) word_ = *reinterpret_cast<const uint32_t*>(words_) >> half_;
    words_ += 32 * block_bytes(kFormat);
    words_left_ -= 32;
  }

  uint64_t policy_;
  const std::byte* from_;
  const std::byte* words_;
  uint4 pieces_[kAhead][kPieces];
  uint32_t word_ = 0;
  int left_, words_left_, lane_, half_;
};

/// Where a 16-byte piece of 8 columns of a token lies.
__device__ inline uint32_t narrow_x_place(uint32_t x, int tokens, int chunk, int token, int piece) {
  return x + 128 * (chunk * tokens + token) + ((piece ^ token) << 4);
}

/// Brings all activations of a group to shared memory, in bf16. All threads of the CTA.
__device__ inline void load_narrow_x(const LinearArgs& args, int group, uint32_t x) {
  constexpr int kBatch = 4;
  const bool coded = args.codes != nullptr;
  const int columns = coded ? 16 : 8;  // of a piece of 16 bytes
  const int line = args.chunks * (kBlockCols / columns);
  const int limit = coded ? args.cols : args.x_cols;
  const int step = static_cast<int>(blockDim.x);
  for (int base = static_cast<int>(threadIdx.x); base < args.tokens * line; base += kBatch * step) {
    uint4 q[kBatch];
    uint8_t scale[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = base + i * step;
      const int token = index / line;
      const int col = index % line * columns;
      q[i] = make_uint4(0, 0, 0, 0);
      scale[i] = 0;
      if (token >= args.tokens || col >= limit) continue;
      if (coded) {
        const int64_t at = static_cast<int64_t>(token) * args.cols + col;
        q[i] = *reinterpret_cast<const uint4*>(args.codes + at);
        scale[i] = args.scales[at / kScaleGroup];
      } else {
        const int64_t at = (static_cast<int64_t>(token) * args.groups + group) * args.x_cols + col;
        q[i] = *reinterpret_cast<const uint4*>(args.x + at);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = base + i * step;
      const int token = index / line;
      const int piece = index % line;
      if (token >= args.tokens) continue;
      if (coded) {
        uint4 wide[2];
        expand_activations(q[i], scale[i], wide);
        const int first = 2 * (piece % 4);
        store_shared_16(narrow_x_place(x, args.tokens, piece / 4, token, first), wide[0]);
        store_shared_16(narrow_x_place(x, args.tokens, piece / 4, token, first + 1), wide[1]);
      } else {
        store_shared_16(narrow_x_place(x, args.tokens, piece / 8, token, piece % 8), q[i]);
      }
    }
  }
}

/// Adds the products of one chunk; `x` is where the lane's line of activations begins.
__device__ inline void multiply_chunk(uint32_t x, const uint32_t (&a)[4][4], float (&sum)[4]) {
  uint32_t b[2][4];
  load_matrices(x, b[0]);
  load_matrices(x ^ 64, b[1]);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    mma_bf16(sum, a[k], b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]);
}

/// One CTA of a product. Its shared memory: sums [slice][strip][lane], a line of zeros that stands
/// for absent tokens, the activations.
template <WeightFormat kFormat>
__device__ void run_narrow_cta(const NarrowProduct& product, int cta, float4* memory) {
  using Weights = StripWeights<kFormat>;
  const LinearArgs& args = product.args;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = args.slices * product.strips;
  const int slice = warp / product.strips;
  const int strip = cta * product.strips + warp % product.strips;
  const int group = cta * product.strips * kStripRows / args.group_rows;
  const int first = slice * args.slice_chunks;
  const bool works = warp < warps && strip * kStripRows < args.rows;
  const int chunks = works ? min(args.slice_chunks, args.chunks - first) : 0;
  Weights weights(args, strip, first, chunks, lane);
  // The first warp of a part adds its slices, the first of all the parts. Found here, beside the
  // first loads, since a division takes long.
  const bool leads = works && slice % args.part_slices == 0;
  const bool finishes = works && slice == 0;

  const uint32_t zeros = shared_address(memory) + 512 * warps;
  const uint32_t x = zeros + 128;
  if (threadIdx.x < 8) store_shared_16(zeros + 16 * threadIdx.x, make_uint4(0, 0, 0, 0));
  wait_for_previous_kernels();
  load_narrow_x(args, group, x);
  __syncthreads();

  const int token = lane % 8;
  const bool real = token < args.tokens;
  uint32_t line = real ? narrow_x_place(x, args.tokens, first, token, lane / 8) : zeros;
  const uint32_t stride = real ? 128u * args.tokens : 0u;
  float sum[4] = {};
  for (int base = 0; base < chunks; base += Weights::kAhead) {
#pragma unroll
    for (int slot = 0; slot < Weights::kAhead; ++slot) {
      if (base + slot < chunks) {
        uint32_t a[4][4];
        weights.unpack(slot, base + slot, a);
        weights.load(slot);
        multiply_chunk(line, a, sum);
        line += stride;
      }
    }
  }
  if (chunks > 0) memory[32 * warp + lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  __syncthreads();
  const int apart = 32 * product.strips;
  float4* partial = memory + 32 * warp;
  float4 result{};
  if (leads)
    result = sum_in_order(partial + lane, min(args.part_slices, args.slices - slice), apart);
  if (args.parts > 1) {
    if (leads) partial[lane] = result;
    __syncthreads();
    if (finishes) result = sum_in_order(partial + lane, args.parts, args.part_slices * apart);
  }
  const RowPair rows(args, group, strip / 4, strip % 4 * 32 + lane);
  const int first_token = 2 * (lane % 4);
  if (args.y_codes != nullptr) {
    // A pair of strips is a group; a strip's first sums make room for what it tells its partner.
    __syncwarp();
    auto* largest = reinterpret_cast<float*>(partial);
    auto* other = reinterpret_cast<const float*>(memory + 32 * (warp ^ 1));
    return write_outputs_q8(args, rows, first_token, result, largest, other, finishes);
  }
  if (!finishes) return;
  if (first_token < args.tokens) write_output(args, rows, first_token, result.x, result.z);
  if (first_token + 1 < args.tokens) write_output(args, rows, first_token + 1, result.y, result.w);
}

}  // namespace di::ops::cuda
