// The benchmarks of the sampler on the device; see ops/cuda/benchmarks.h.
#pragma once

#include "ops/cuda/benchmarks.h"

namespace di::sampling::cuda {

void bench_draw(const ops::cuda::BenchReport& report);
void bench_verify(const ops::cuda::BenchReport& report);  ///< and the choice of drafts

}  // namespace di::sampling::cuda
