#include "ops/cuda/launch.h"

#include <string>

#include "base/error.h"

namespace di::ops::cuda {

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  throw Error(ErrorCode::kUnsupported, std::string(what) + ": " + cudaGetErrorString(code));
}

int num_sms() {
  static const int count = [] {
    int device = 0;
    int sms = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute(MultiProcessorCount)"
    );
    return sms;
  }();
  return count;
}

}  // namespace di::ops::cuda
