// The two products of attention on Hopper's tensor cores, beside those of wgmma.cuh: logits with
// both operands in shared memory, and values with P in registers and V transposed, which is the
// very tile that the logits read as K.
//
// A tile is 64 rows (heads or keys) of 512 channels: eight column blocks of 64 channels, each 64
// rows of 128 bytes, swizzled. As B of the logits its rows are N and its channels K; as B of the
// values its rows are K and its channels N.
#pragma once

#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kTileDim = 512;
inline constexpr int kColumnBlock = 64;  // channels in 128 bytes
inline constexpr int kTileBytes = kTileRows * kTileDim * 2;

/// What the descriptor of values grows by from 16 rows to the next.
inline constexpr int kValuesStep = 16 * 128 / 16;

/// Descriptor of the first 16 rows of a tile as transposed B. `tile` is the address of its first
/// column block; the next ones follow at `block_bytes`.
__device__ inline uint64_t values_descriptor(uint32_t tile, uint32_t block_bytes) {
  const uint64_t start = tile >> 4 & 0x3fff;
  return start | uint64_t{block_bytes >> 4} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// clang-format off
#define DI_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DI_D8(i) DI_D4(i), DI_D4(i + 4)
#define DI_D16(i) DI_D8(i), DI_D8(i + 8)
#define DI_D32(i) DI_D16(i), DI_D16(i + 16)
#define DI_D40(i) DI_D32(i), DI_D8(i + 32)
#define DI_D64(i) DI_D32(i), DI_D32(i + 32)

/// D[64, N] (+)= A[64, 16] · B[16, N], both stored by rows of K.
template <int N>
__device__ inline void wgmma_logits(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (N == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
        : DI_D32(0)
        : "l"(a), "l"(b), "r"(accumulate)
    );
  } else if constexpr (N == 80) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %42, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39"
        "}, %40, %41, p, 1, 1, 0, 0;\n}\n"
        : DI_D40(0)
        : "l"(a), "l"(b), "r"(accumulate)
    );
  } else {
    static_assert(N == 80, "no such product here");
  }
}

/// D[64, N] (+)= A[64, 16] · B[16, N] with A in registers and B stored by rows of N.
template <int N>
__device__ inline void wgmma_values(
    float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int accumulate
) {
  if constexpr (N == 32) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, p, 1, 1, 1;\n}\n"
        : DI_D16(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
    );
  } else if constexpr (N == 64) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : DI_D32(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
    );
  } else {
    static_assert(N == 32, "no such product here");
  }
}

/// D[64, 128] (+)= A[64, 16] · B[16, 128] with A in shared memory and B stored by rows of N.
__device__ inline void wgmma_shared_values(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 1;\n}\n"
      : DI_D64(0)
      : "l"(a), "l"(b), "r"(accumulate)
  );
}

#undef DI_D4
#undef DI_D8
#undef DI_D16
#undef DI_D32
#undef DI_D40
#undef DI_D64
// clang-format on

}  // namespace di::ops::cuda
