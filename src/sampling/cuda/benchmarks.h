// The benchmark of the sampler on the device; see ops/cuda/benchmarks.h.
#pragma once

#include "ops/cuda/benchmarks.h"

namespace di::sampling::cuda {

void bench_draw(const ops::cuda::BenchReport& report);

}  // namespace di::sampling::cuda
