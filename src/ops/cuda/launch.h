// What every CUDA file of ours needs to launch a kernel: errors as exceptions, and the device's
// numbers. Ops only enqueue work on Exec::stream; none waits for the device.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

/// Throws Error{kUnsupported} naming `what` and CUDA's reason when `code` is an error.
void check(cudaError_t code, const char* what);

/// Throws when the kernel just launched could not start.
inline void check_launch(const char* kernel) {
  check(cudaPeekAtLastError(), kernel);
}

/// Streaming multiprocessors of the current device. Read once.
int num_sms();

/// Lets `kernel` use `bytes` of dynamic shared memory; beyond 48 KB the device must be asked. Once
/// for each kernel and size, so keep the call in a static of the launching function.
template <class Kernel>
int allow_shared_memory(Kernel* kernel, int bytes) {
  check(
      cudaFuncSetAttribute(
          reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes
      ),
      "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)"
  );
  return bytes;
}

}  // namespace di::ops::cuda
