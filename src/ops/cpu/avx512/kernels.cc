// The kernels for AVX-512 without VNNI.
#include "ops/cpu/avx512/vector.h"
#include "ops/cpu/double_tiles.h"
#include "ops/cpu/fp4_tiles.h"

namespace di::ops::cpu {

const Kernels kAvx512Kernels = {
    .isa = "avx512",
    .digit_bits = 7,
    .q8_fp4 = fp4_kernel<Avx512>,
    .q8_fp8 = wide_kernel<Avx512>,
    .linear_bf16 = double_kernel<Avx512, Bf16Source>,
    .linear_f32 = double_kernel<Avx512, F32Source>,
    .linear_fp8 = double_kernel<Avx512, Fp8Source>,
};

}  // namespace di::ops::cpu
