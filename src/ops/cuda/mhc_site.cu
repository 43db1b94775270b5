// A site of the hyper-connections in one launch; docs/kernels/cuda_rows.md has the picture.
//
// A cluster of CTAs takes a tile of rows, each CTA a range of channels of all four streams, each
// warp one *unit* of 64 channels. The 24-row projection runs on the tensor cores: the streams are
// bf16, and an fp32 number of fn is the sum of three bf16. The chains are short (32 products of one
// stream and block), and what is added behind them is added in an order that the hidden size alone
// decides: the blocks of a unit in fp32, the units in eight groups and then the groups in double.
#include <cooperative_groups.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/mhc_rows.cuh"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kUnit = 64;                          ///< channels of a warp
constexpr int kBlock = 32;                         ///< channels of a Q8 group, and of a chain
constexpr int kItems = kUnit / kBlock * kStreams;  ///< blocks of a unit, stream by stream
constexpr int kGroups = 8;                         ///< groups of units
constexpr int kSlots = 5;                          ///< blocks of streams that a warp's ring holds
constexpr int kSums = kMixes + 1;                  ///< the projection, and the squares of h
constexpr int kMaxThreads = 320;
constexpr int kMaxOwnRows = 8;  ///< of a CTA, whose mixes it finishes

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
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// A block of fn for the tensor cores: three parts of 24 outputs × 32 channels, the least first.
struct FnParts {
  uint32_t pair[3][3][4];  ///< [part][eight outputs][pair of channels]
};

/// Splits fp32 numbers into three bf16 each. A lane holds output lane / 4 of each eight, and the
/// eight channels from 8 · (lane mod 4) on.
__device__ inline FnParts split(const float4 (&fn)[3][2]) {
  FnParts parts;
#pragma unroll
  for (int n = 0; n < 3; ++n) {
    const float x[8] = {
        fn[n][0].x,
        fn[n][0].y,
        fn[n][0].z,
        fn[n][0].w,
        fn[n][1].x,
        fn[n][1].y,
        fn[n][1].z,
        fn[n][1].w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      float low = x[2 * p];
      float high = x[2 * p + 1];
#pragma unroll
      for (int part = 2; part >= 0; --part) {
        const uint32_t pair = round_pair(low, high);
        parts.pair[part][n][p] = pair;
        low -= low_float(pair);
        high -= high_float(pair);
      }
    }
  }
  return parts;
}

__device__ inline void load_fn(float4 (&fn)[3][2], const float* from, int64_t width) {
#pragma unroll
  for (int n = 0; n < 3; ++n) {
    const auto* output = reinterpret_cast<const float4*>(from + n * 8 * width);
    fn[n][0] = __ldg(output);
    fn[n][1] = __ldg(output + 1);
  }
}

/// Where a CTA keeps what: each warp's ring of slots, then what is common to the CTA. A slot holds
/// one block of a stream for the tile's rows, 64 bytes a row. When the streams are used up, slots 0
/// and 4 hold the two blocks of x, and the others the warp's sums.
template <int kRowTiles>
struct Layout {
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kSlotBytes = kRows * kBlock * 2;
  static constexpr int kRingBytes = kSlots * kSlotBytes;

  static __device__ float* unit_mixes(char* ring) {  // [rows, 24]
    return reinterpret_cast<float*>(ring + kSlotBytes);
  }
  static __device__ double* unit_squares(char* ring) {  // [2][rows]: of h, of x
    return reinterpret_cast<double*>(ring + 3 * kSlotBytes);
  }
  static __device__ double* group_sums(char* common) {  // [own rows][kGroups][kSums]
    return reinterpret_cast<double*>(common);
  }
  static __device__ double* x_groups(char* common) {  // [rows][kGroups]
    return reinterpret_cast<double*>(common + kMaxOwnRows * kGroups * kSums * 8);
  }
  static __device__ float* factors(char* common) {  // [rows]
    return reinterpret_cast<float*>(x_groups(common) + kRows * kGroups);
  }
  static __device__ float* mixes(char* common) {  // [own rows][24]
    return factors(common) + kRows;
  }
  static int bytes(int warps) {
    return warps * kRingBytes + kMaxOwnRows * kGroups * kSums * 8 + kRows * kGroups * 8 +
           kRows * 4 + kMaxOwnRows * kMixes * 4;
  }
};

/// What a warp carries through its unit: for 16 · kRowTiles rows, the projection and the squares.
template <int kRowTiles>
struct UnitSums {
  float mixes[kRowTiles][3][4] = {};
  float h_squares[kRowTiles][2] = {};
};

/// Adds one block of one stream. `slot` is this lane's place in it.
template <int kRowTiles>
__device__ inline void add_block(
    UnitSums<kRowTiles>& sums, const char* slot, const FnParts& parts
) {
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
    const uint4 top = *reinterpret_cast<const uint4*>(slot + tile * 1024);
    const uint4 bottom = *reinterpret_cast<const uint4*>(slot + tile * 1024 + 512);
    const uint32_t a[2][4] = {
        {top.x, bottom.x, top.y, bottom.y}, {top.z, bottom.z, top.w, bottom.w}};
    float chain[3][4] = {};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int n = 0; n < 3; ++n) {
          mma(chain[n], a[step], parts.pair[part][n][2 * step], parts.pair[part][n][2 * step + 1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 3; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums.mixes[tile][n][i] += chain[n][i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float values[kVector];
      unpack(half == 0 ? top : bottom, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sums.h_squares[tile][half] = fmaf(values[i], values[i], sums.h_squares[tile][half]);
    }
  }
}

/// Collapses the four streams of a block into `x`; the slots are this lane's places in them.
template <int kRowTiles>
__device__ inline void collapse_block(
    char* x, const char* const (&slots)[kStreams], const float* a, int first_row, int last_row
) {
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(first_row + tile * 16 + half * 8, last_row);
      const float4 weights = __ldg(reinterpret_cast<const float4*>(a) + row);
      const float by_stream[kStreams] = {weights.x, weights.y, weights.z, weights.w};
      const int offset = tile * 1024 + half * 512;
      const uint4 h[kStreams] = {
          *reinterpret_cast<const uint4*>(slots[0] + offset),
          *reinterpret_cast<const uint4*>(slots[1] + offset),
          *reinterpret_cast<const uint4*>(slots[2] + offset),
          *reinterpret_cast<const uint4*>(slots[3] + offset)};
      *reinterpret_cast<uint4*>(x + offset) = collapse_vector(h, by_stream);
    }
  }
}

/// Σ x² over this lane's channels of a row: eight of each block.
template <int kRowTiles>
__device__ inline double squares_of_x(const char* place) {
  double sum = 0;
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    float x[kVector];
    const int slot = block * (kSlots - 1);
    unpack(*reinterpret_cast<const uint4*>(place + slot * Layout<kRowTiles>::kSlotBytes), x);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      sum += x[i] * x[i];
  }
  return sum;
}

/// The slot of a unit's item (block · 4 + stream): slot 0 keeps block 0's x, so that stream 0 of
/// block 1 goes to slot 4.
__device__ constexpr int slot_of(int item) {
  return item == 4 ? 4 : item % 4;
}

/// Waits until an item is there. Of the copies, five are asked for at first, the rest after item 3.
__device__ inline void wait_for_item(int item) {
  const int pending = item < 4 ? 4 - item : 7 - item;
  switch (pending) {
    case 0: wait_copies<0>(); break;
    case 1: wait_copies<1>(); break;
    case 2: wait_copies<2>(); break;
    case 3: wait_copies<3>(); break;
    default: wait_copies<4>(); break;
  }
}

/// One warp: streams its unit in, projects, collapses, and leaves the sums in its ring.
template <int kRowTiles, int kAhead>
__device__ inline void run_unit(const SiteArgs& op, char* ring, int first_row, int first_channel) {
  using Memory = Layout<kRowTiles>;
  const int lane = threadIdx.x % 32;
  const int row = lane / 4;
  const int64_t width = int64_t{kStreams} * op.hidden;
  char* mine = ring + row * 64 + lane % 4 * 16;
  const int channel = first_channel + lane % 4 * kVector;

  const auto start_item = [&](int item) {
    const int64_t place = item % 4 * op.hidden + channel + item / 4 * kBlock;
    char* slot = mine + slot_of(item) * Memory::kSlotBytes;
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int from = min(first_row + row + i * 8, op.rows - 1);
      copy_async(slot + i * 512, op.h + from * width + place);
    }
    commit_copies();
  };
  const auto fn_of = [&](int item) {
    return op.fn + row * width + item % 4 * op.hidden + channel + item / 4 * kBlock;
  };
#pragma unroll
  for (int item = 0; item < kSlots; ++item)
    start_item(item);
  float4 fn[kAhead][3][2];
#pragma unroll
  for (int item = 0; item < kAhead; ++item)
    load_fn(fn[item], fn_of(item), width);

  UnitSums<kRowTiles> sums;
#pragma unroll(kAhead == 1 ? 1 : kItems)
  for (int item = 0; item < kItems; ++item) {
    constexpr int kLast = kItems - 1;
    wait_for_item(item);
    const FnParts parts = split(fn[item % kAhead]);
    if (item + kAhead <= kLast) load_fn(fn[item % kAhead], fn_of(item + kAhead), width);
    add_block(sums, mine + slot_of(item) * Memory::kSlotBytes, parts);
    if (item % kStreams != kStreams - 1) continue;
    char* first = mine + slot_of(item - 3) * Memory::kSlotBytes;
    if (op.a != nullptr) {
      const char* const slots[kStreams] = {
          first,
          mine + Memory::kSlotBytes,
          mine + 2 * Memory::kSlotBytes,
          mine + 3 * Memory::kSlotBytes};
      collapse_block<kRowTiles>(first, slots, op.a, first_row + row, op.rows - 1);
    }
    if (item != kLast) {
#pragma unroll
      for (int next = kSlots; next < kItems; ++next)
        start_item(next);
    }
  }

  __syncwarp();
  float* mixes = Memory::unit_mixes(ring);
  double* squares = Memory::unit_squares(ring);
#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = tile * 16 + half * 8 + row;
#pragma unroll
      for (int n = 0; n < 3; ++n) {
        *reinterpret_cast<float2*>(mixes + at * kMixes + n * 8 + lane % 4 * 2) = {
            sums.mixes[tile][n][2 * half], sums.mixes[tile][n][2 * half + 1]};
      }
      double h = sums.h_squares[tile][half];
      double x = op.a == nullptr ? 0.0 : squares_of_x<kRowTiles>(mine + tile * 1024 + half * 512);
#pragma unroll
      for (int distance = 1; distance <= 2; distance *= 2) {
        h += __shfl_xor_sync(0xffffffffu, h, distance);
        x += __shfl_xor_sync(0xffffffffu, x, distance);
      }
      if (lane % 4 == 0) {
        squares[at] = h;
        squares[Memory::kRows + at] = x;
      }
    }
  }
}

/// A number of a unit, wherever in the cluster it lies.
template <class T>
__device__ inline T of_unit(
    const cg::cluster_group& cluster, T* in_first_ring, int ring_bytes, int unit
) {
  const int warps = blockDim.x / 32;
  char* local = reinterpret_cast<char*>(in_first_ring) + unit % warps * ring_bytes;
  return *cluster.map_shared_rank(reinterpret_cast<T*>(local), unit / warps);
}

/// Adds the units of each group, in double: of the CTA's own rows everything but the squares of x,
/// and those of all rows.
template <int kRowTiles>
__device__ inline void sum_groups(const cg::cluster_group& cluster, char* rings, char* common) {
  using Memory = Layout<kRowTiles>;
  const int ctas = static_cast<int>(cluster.num_blocks());
  const int units = blockDim.x / 32 * ctas / kGroups;  // of a group
  const int own = Memory::kRows / ctas;
  const int first = static_cast<int>(cluster.block_rank()) * own;
  float* mixes = Memory::unit_mixes(rings);
  double* squares = Memory::unit_squares(rings);
  for (int i = threadIdx.x; i < own * kGroups * kSums; i += blockDim.x) {
    const int row = first + i / (kGroups * kSums);
    const int group = i / kSums % kGroups;
    const int which = i % kSums;
    double sum = 0;
    for (int unit = group * units; unit < (group + 1) * units; ++unit) {
      sum += which < kMixes
                 ? of_unit(cluster, mixes + row * kMixes + which, Memory::kRingBytes, unit)
                 : of_unit(cluster, squares + row, Memory::kRingBytes, unit);
    }
    Memory::group_sums(common)[i] = sum;
  }
  for (int i = threadIdx.x; i < Memory::kRows * kGroups; i += blockDim.x) {
    double sum = 0;
    for (int unit = i % kGroups * units; unit < (i % kGroups + 1) * units; ++unit) {
      sum += of_unit(cluster, squares + Memory::kRows + i / kGroups, Memory::kRingBytes, unit);
    }
    Memory::x_groups(common)[i] = sum;
  }
}

/// A warp finishes the mixes of two of the CTA's own rows.
template <int kRowTiles>
__device__ inline void finish_rows(
    const SiteArgs& op, char* common, int own, int first_row, int rank
) {
  using Memory = Layout<kRowTiles>;
  const int lane = threadIdx.x % 16;
  const int local = threadIdx.x / 16;
  const bool is_mine = local < own;
  const double* groups = Memory::group_sums(common) + (is_mine ? local : 0) * kGroups * kSums;
  const auto total = [&](int which) {
    double sum = 0;
    for (int group = 0; group < kGroups; ++group)
      sum += groups[group * kSums + which];
    return sum;
  };
  const float factor =
      inverse_rms_of_sum(total(kMixes), int64_t{kStreams} * op.hidden, op.norm_eps);
  float* m = Memory::mixes(common) + (is_mine ? local : 0) * kMixes;
  if (is_mine) {
    m[lane] = static_cast<float>(total(lane)) * factor;
    if (lane < 8) m[16 + lane] = static_cast<float>(total(16 + lane)) * factor;
  }
  __syncwarp();
  const int row = first_row + rank * own + local;
  finish_mixes(op.mix, m, is_mine && row < op.rows ? row : -1);
}

/// `threads` threads, of which this is number `thread`, norm the CTA's channels of x and give them
/// their Q8 form.
template <int kRowTiles>
__device__ inline void norm_rows(
    const SiteArgs& op,
    const char* rings,
    char* common,
    int first_row,
    int rank,
    int thread,
    int threads
) {
  using Memory = Layout<kRowTiles>;
  float* factors = Memory::factors(common);
  if (thread < Memory::kRows) {
    double sum = 0;
    for (int group = 0; group < kGroups; ++group)
      sum += Memory::x_groups(common)[thread * kGroups + group];
    factors[thread] = inverse_rms_of_sum(sum, op.hidden, op.norm_eps);
  }
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  const int vectors = blockDim.x / 32 * (kUnit / kVector);  // of a row
  const int rows = min(Memory::kRows, op.rows - first_row);
  for (int i = thread; i < (rows * vectors + 31) / 32 * 32; i += threads) {
    const bool is_one = i < rows * vectors;
    const int row = is_one ? i / vectors : 0;
    const int v = is_one ? i % vectors : i % 4;
    const int slot = v % 8 < 4 ? 0 : 4;
    const char* place =
        rings + v / 8 * Memory::kRingBytes + slot * Memory::kSlotBytes + row * 64 + v % 4 * 16;
    const int d = rank * vectors * kVector + v * kVector;
    float x[kVector];
    float weights[kVector];
    unpack(*reinterpret_cast<const uint4*>(place), x);
    unpack(load_vector(op.norm + d), weights);
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      x[k] = weights[k] * (x[k] * factors[row]);
    const uint4 rounded = pack(x);
    unpack(rounded, x);
    const Q8Vector q8 = quantize_q8(x);
    if (!is_one) continue;
    const int64_t at = int64_t{first_row + row} * op.hidden + d;
    store_vector(op.x + at, rounded);
    *reinterpret_cast<uint2*>(op.codes + at) = q8.codes;
    if (v % 4 == 0) op.scales[at / kBlock] = q8.scale;
  }
}

/// kAhead: how many blocks of fn a warp asks for ahead.
template <int kRowTiles, int kAhead>
__global__ void __launch_bounds__(kMaxThreads) site_kernel(SiteArgs op) {
  extern __shared__ __align__(128) char rings[];
  using Memory = Layout<kRowTiles>;
  const cg::cluster_group cluster = cg::this_cluster();
  const int warps = blockDim.x / 32;
  const int warp = threadIdx.x / 32;
  const int rank = static_cast<int>(cluster.block_rank());
  const int first_row = static_cast<int>(blockIdx.y) * Memory::kRows;
  char* common = rings + warps * Memory::kRingBytes;
  run_unit<kRowTiles, kAhead>(
      op, rings + warp * Memory::kRingBytes, first_row, (rank * warps + warp) * kUnit
  );
  cluster.sync();
  sum_groups<kRowTiles>(cluster, rings, common);
  cluster.barrier_arrive();  // a CTA's memory must outlive its readers
  __syncthreads();
  const int own = Memory::kRows / static_cast<int>(cluster.num_blocks());
  const int finishing = (own + 1) / 2;  // warps
  if (warp < finishing) {
    finish_rows<kRowTiles>(op, common, own, first_row, rank);
  } else if (op.a != nullptr) {
    norm_rows<kRowTiles>(
        op,
        rings,
        common,
        first_row,
        rank,
        static_cast<int>(threadIdx.x) - finishing * 32,
        static_cast<int>(blockDim.x) - finishing * 32
    );
  }
  cluster.barrier_wait();
}

template <int kRowTiles, int kAhead>
void launch(Exec& exec, const SiteArgs& args, int ctas) {
  using Memory = Layout<kRowTiles>;
  auto* kernel = site_kernel<kRowTiles, kAhead>;
  const int warps = args.hidden / kUnit / ctas;
  const int bytes = Memory::bytes(warps);
  static const int allowed = [&] {
    check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute(NonPortableClusterSizeAllowed)"
    );
    return allow_shared_memory(kernel, Memory::bytes(kMaxThreads / 32));
  }();
  static_cast<void>(allowed);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned int>(ctas), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned int>(ctas), blocks_of(args.rows, Memory::kRows));
  config.blockDim = dim3(static_cast<unsigned int>(warps * 32));
  config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
  config.stream = exec.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, args), "mhc_site");
}

}  // namespace

bool has_site_kernel(int64_t hidden) {
  return hidden % (kUnit * 16) == 0 && hidden / (kUnit * 8) <= kMaxThreads / 32 &&
         hidden / (kUnit * 16) >= 4;
}

void run_site_kernel(Exec& exec, const MhcSite& op) {
  const bool collapses = !op.x.empty();
  const SiteArgs args{
      .mix =
          {.pre = op.mix.pre.data,
           .post = op.mix.post.data,
           .comb = op.mix.comb.data,
           .mixes = op.mix.mixes.data,
           .scale = op.mix.scale.data,
           .base = op.mix.base.data,
           .sinkhorn_iters = op.mix.sinkhorn_iters,
           .hc_eps = op.mix.hc_eps},
      .h = op.mix.h.data,
      .fn = reinterpret_cast<const float*>(op.mix.fn.data),
      .a = collapses ? op.a.data : nullptr,
      .norm = op.norm.data,
      .x = op.x.data,
      .codes = op.codes.data,
      .scales = op.scales.data,
      .rows = static_cast<int>(op.mix.h.dim(0)),
      .hidden = static_cast<int>(op.mix.h.dim(2)),
      .norm_eps = op.mix.norm_eps};
  constexpr int kFewRows = 128;
  if (args.rows <= kFewRows) {
    launch<1, 4>(exec, args, 16);
  } else {
    launch<4, 1>(exec, args, 8);
  }
}

}  // namespace di::ops::cuda
