// Launches of kernels that begin while the one before them ends. Memory that some kernel writes is
// safe behind wait_for_previous_kernels() only, where every kernel waits. Attention and experts let
// the next one start behind their wait: what was written before them is finished for all behind.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/launch.h"

namespace di::ops::cuda {

/// Waits until the kernels before this one in the stream are done, when it was launched to overlap
/// with them; before it, only data that no kernel writes may be read, and nothing may be written.
__device__ inline void wait_for_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// Lets the next kernel of the stream start, if it was launched to overlap with this one, as soon
/// as all blocks of this one have come here.
__device__ inline void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
/// How a small kernel begins: the next one's launch is under way before this one's work is.
__device__ inline void join_kernel_chain() {
  let_next_kernel_start();
  wait_for_previous_kernels();
}

/// Launches `kernel` in clusters of `cluster` blocks along x, with `shared` bytes of dynamic shared
/// memory. Throws Error{kUnsupported} naming `what` when it cannot start.
template <class... Parameters, class... Arguments>
void launch_clusters_overlapped(
    const char* what,
    void (*kernel)(Parameters...),
    dim3 grid,
    int cluster,
    int threads,
    int shared,
    cudaStream_t stream,
    const Arguments&... arguments
) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

/// The same without clusters.
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
  launch_clusters_overlapped(what, kernel, grid, 1, threads, shared, stream, arguments...);
}

}  // namespace di::ops::cuda
