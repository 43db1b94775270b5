// The linears' kernel for small matrices and up to 8 tokens: y[tokens, rows] = x[tokens, cols] ·
// Wᵀ.
//
// A strip is 16 rows. Each warp multiplies one slice of the columns of one strip; the warps of a
// CTA are all slices of a few strips, so that the slices' sums meet in shared memory. A lane copies
// the weights that it will need itself into a ring of its own, which no other thread touches: no
// barrier stands between memory and tensor cores. The rings fill before the kernels that write the
// activations have ended. Activations lie in shared memory as in the linear kernel, [chunk][token]
// lines of 64 columns, swizzled.
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

/// How one format's strips travel: pieces of 16 bytes a lane in a chunk of 64 columns, and the
/// chunks that a ring holds.
template <WeightFormat kFormat>
struct StripTraits {
  static constexpr int pieces = kFormat == WeightFormat::kFp8 ? 2 : 4;
  static constexpr int ring = kFormat == WeightFormat::kFp8 ? 8 : 4;
  static constexpr int multiplier_bytes = kFormat == WeightFormat::kFp8 ? 4 : 0;
  static constexpr int slot_bytes = 32 * (16 * pieces + multiplier_bytes);
};

/// One product of a launch.
struct NarrowProduct {
  LinearArgs args;
  int strips;     ///< of a CTA: 1, 2 or 4
  int slots;      ///< of a warp's ring
  int first_cta;  ///< of the grid
};

/// A launch: the products' CTAs follow each other.
struct NarrowSet {
  NarrowProduct products[kMaxNarrowProducts];
  int count;
};

/// Asynchronous copies of this thread, 16 bytes that pass the caches by or 4, and their batches.
__device__ inline void copy_streaming(uint32_t to, const std::byte* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from),
               "l"(policy)
               : "memory");
}
__device__ inline void copy_word(uint32_t to, const std::byte* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ inline uint64_t streaming_policy() {
  uint64_t policy = 0;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// A lane's weights on their way: its pieces of one strip, chunk after chunk.
template <WeightFormat kFormat>
class StripStream {
 public:
  using T = StripTraits<kFormat>;

  __device__ StripStream(
      const NarrowProduct& product, int strip, int first_chunk, int count, uint32_t ring, int lane
  )
      : policy_(streaming_policy()),
        ring_(ring),
        ring_end_(ring + product.slots * T::slot_bytes),
        fill_(ring),
        take_(ring),
        left_(count),
        lane_(lane),
        second_half_(strip % 4 / 2 * 16) {
    const int64_t block = static_cast<int64_t>(strip / 4) * product.args.chunks + first_chunk;
    from_ = product.args.weights + block * block_bytes(kFormat);
    piece_ = 512 * (strip % 4) + 16 * lane;
  }

  /// Asks for the next chunk, if there is one, as one batch.
  __device__ void ask() {
    if (left_ > 0) {
#pragma unroll
      for (int i = 0; i < T::pieces; ++i)
        copy_streaming(fill_ + 512 * i + 16 * lane_, from_ + piece_ + 2048 * i, policy_);
      if constexpr (T::multiplier_bytes != 0)
        copy_word(fill_ + 512 * T::pieces + 4 * lane_, from_ + 2048 * T::pieces);
      from_ += block_bytes(kFormat);
      fill_ = next(fill_);
      --left_;
    }
    commit_copies();
  }

  /// The A fragments of the next chunk that has come: registers [product of 16 columns][4].
  __device__ void take(uint32_t (&a)[4][4]) {
    if constexpr (kFormat == WeightFormat::kFp8) {
      const uint32_t m = load_shared_4(take_ + 512 * T::pieces + 4 * lane_) >> second_half_;
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        const uint4 q = load_shared_16(take_ + 512 * group + 16 * lane_);
        unpack_fp8_group(q, m >> 8 * group & 255, a[2 * group], a[2 * group + 1]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint4 q = load_shared_16(take_ + 512 * k + 16 * lane_);
        a[k][0] = q.x;
        a[k][1] = q.y;
        a[k][2] = q.z;
        a[k][3] = q.w;
      }
    }
    take_ = next(take_);
  }

 private:
  __device__ uint32_t next(uint32_t slot) const {
    slot += T::slot_bytes;
    return slot == ring_end_ ? ring_ : slot;
  }

  uint64_t policy_;
  const std::byte* from_;
  uint32_t ring_, ring_end_, fill_, take_;
  int left_, lane_, piece_, second_half_;
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

/// Sums the products of a warp's chunks, in one chain. `x` is the lane's line of activations of the
/// first chunk, of which it names pieces `first` and, for the second half, `first` ^ 4.
template <WeightFormat kFormat>
__device__ void multiply_strip(
    StripStream<kFormat>& weights, int chunks, uint32_t x, uint32_t stride, float (&sum)[4]
) {
#pragma unroll 2
  for (int chunk = 0; chunk < chunks; ++chunk) {
    uint32_t a[4][4];
    uint32_t b[2][4];
    wait_for_copies<StripTraits<kFormat>::ring - 1>();
    weights.take(a);
    load_matrices(x, b[0]);
    load_matrices(x ^ 64, b[1]);
    x += stride;
    weights.ask();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_bf16(sum, a[k], b[k / 2][k % 2 * 2], b[k / 2][k % 2 * 2 + 1]);
  }
}

/// Adds a strip's slices in ascending order and writes its results. One warp.
__device__ inline void finish_strip(
    const LinearArgs& args, int group, int strip, const float4* partial, int stride, int lane
) {
  float4 sum = partial[lane];
  for (int slice = 1; slice < args.slices; ++slice) {
    const float4 next = partial[slice * stride + lane];
    sum = make_float4(sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w);
  }
  const RowPair rows(args, group, strip / 4, strip % 4 * 32 + lane);
  const int token = 2 * (lane % 4);
  if (token < args.tokens) write_output(args, rows, token, sum.x, sum.z);
  if (token + 1 < args.tokens) write_output(args, rows, token + 1, sum.y, sum.w);
}

/// One CTA of a product. Its shared memory: results [slices][strips][lane], one line of zeros, the
/// activations, the warps' rings.
template <WeightFormat kFormat>
__device__ void run_narrow_cta(const NarrowProduct& product, int cta, float4* memory) {
  using T = StripTraits<kFormat>;
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
  const uint32_t zeros = shared_address(memory) + 512 * warps;
  const uint32_t x = zeros + 128;
  const uint32_t rings = x + 128 * args.tokens * args.chunks;
  StripStream<kFormat> weights(
      product, strip, first, chunks, rings + warp * product.slots * T::slot_bytes, lane
  );
#pragma unroll
  for (int i = 0; i < T::ring; ++i)
    weights.ask();
  if (threadIdx.x < 8) store_shared_16(zeros + 16 * threadIdx.x, make_uint4(0, 0, 0, 0));
  wait_for_previous_kernels();
  load_narrow_x(args, group, x);
  __syncthreads();
  if (chunks > 0) {
    const int token = lane % 8;
    const bool real = token < args.tokens;
    float sum[4] = {};
    multiply_strip<kFormat>(
        weights,
        chunks,
        real ? narrow_x_place(x, args.tokens, first, token, lane / 8) : zeros,
        real ? 128u * args.tokens : 0u,
        sum
    );
    memory[32 * warp + lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
  }
  __syncthreads();
  if (works && slice == 0)
    finish_strip(args, group, strip, memory + 32 * warp, 32 * product.strips, lane);
}

}  // namespace di::ops::cuda
