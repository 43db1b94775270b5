// The kernels for AVX-512 with VNNI, VBMI and BF16.
#include "ops/cpu/double_tiles.h"
#include "ops/cpu/fp4_tiles.h"
#include "ops/cpu/fp8_bytes.h"
#include "ops/cpu/fp8_words.h"
#include "ops/cpu/prepare.h"
#include "ops/cpu/vnni/vector.h"

namespace di::ops::cpu {

const Kernels kVnniKernels = {
    .isa = "vnni",
    .prepare = prepare_blocks<8>,
    .q8_fp4 = {fp4_kernel<Vnni>, Q8Form::kDigits},
    .q8_fp8_few = {fp8_bytes_kernel<Vnni>, Q8Form::kDigits},
    .q8_fp8_many = {fp8_words_kernel<Vnni>, Q8Form::kWords},
    .fp8_many_rows = 3,
    .linear_bf16 = double_kernel<Vnni, Bf16Source>,
    .linear_f32 = double_kernel<Vnni, F32Source>,
    .linear_fp8 = double_kernel<Vnni, Fp8Source>,
};

}  // namespace di::ops::cpu
