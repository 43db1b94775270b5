// Launches of kernels that begin while the one before them in the stream ends. Such a kernel waits
// by itself before it reads what that one wrote: wait_for_previous_kernels() of pipeline.cuh.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/launch.h"

namespace di::ops::cuda {

/// Launches `kernel` with `shared` bytes of dynamic shared memory. Throws Error{kUnsupported}
/// naming `what` when it cannot start.
template <class... Parameters, class... Arguments>
void launch_overlapped(
    const char* what,
    void (*kernel)(Parameters...),
    dim3 grid,
    int threads,
    int shared,
    cudaStream_t stream,
    const Arguments&... arguments
) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace di::ops::cuda
