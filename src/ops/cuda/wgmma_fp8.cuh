// The FP8 sibling of wgmma.cuh: D[64, 32] = A[64, 32] · B[32, 32] with E4M3 operands, A in
// registers. Hopper adds the 32 products of such a step with about 13 bits, which is exact where
// every product is a multiple of a 2^-13th of the largest possible sum, as it is for E2M1 values of
// one scale.
//
// Fragments. Thread t = 32 · warp + lane owns rows r = 16 · warp + lane / 4 and r + 8; a register
// holds four columns.
//   A: a[0] = (r, c), a[1] = (r + 8, c), a[2] = (r, c + 16), a[3] = (r + 8, c + 16), c = 4 · (lane
//   % 4). D: as in wgmma.cuh.
// B is stored as N rows of 128 columns of K (128 bytes), swizzled and described as in wgmma.cuh; a
// step is 32 columns.
#pragma once

#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// D = A · B.
__device__ inline void wgmma_e4m3_n32(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1;\n}\n"
      : "=f"(d[0]),
        "=f"(d[1]),
        "=f"(d[2]),
        "=f"(d[3]),
        "=f"(d[4]),
        "=f"(d[5]),
        "=f"(d[6]),
        "=f"(d[7]),
        "=f"(d[8]),
        "=f"(d[9]),
        "=f"(d[10]),
        "=f"(d[11]),
        "=f"(d[12]),
        "=f"(d[13]),
        "=f"(d[14]),
        "=f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
  );
}

/// D += A · ones[16, 8] of one warp in bf16: sums of rows of A in every column of D. A as in
/// wgmma.cuh with r = lane / 4; d[0] is the sum of row r, d[2] of row r + 8.
__device__ inline void add_row_sums(float (&d)[4], const uint32_t (&a)[4]) {
  constexpr uint32_t kOnes = 0x3f803f80u;
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %8}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(kOnes));
}

}  // namespace di::ops::cuda
