// The AVX2 kernels.
#include "ops/cpu/avx2/vector.h"
#include "ops/cpu/double_tiles.h"
#include "ops/cpu/fp4_tiles.h"
#include "ops/cpu/fp8_doubles.h"
#include "ops/cpu/fp8_words.h"
#include "ops/cpu/prepare.h"

namespace di::ops::cpu {

const Kernels kAvx2Kernels = {
    .isa = "avx2",
    .prepare = prepare_blocks<7>,
    .q8_fp4 = {fp4_kernel<Avx2>, Q8Form::kDigits},
    .q8_fp8_few = {fp8_doubles_kernel<Avx2>, Q8Form::kDoubles},
    .q8_fp8_many = {fp8_words_kernel<Avx2>, Q8Form::kWords},
    .fp8_many_rows = 8,
    .linear_bf16 = double_kernel<Avx2, Bf16Source>,
    .linear_f32 = double_kernel<Avx2, F32Source>,
    .linear_fp8 = double_kernel<Avx2, Fp8Source>,
};

}  // namespace di::ops::cpu
