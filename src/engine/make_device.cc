#include "engine/make_device.h"

#include "engine/model_device.h"

#if DI_HAS_CUDA
#include "engine/cuda/cuda_device.h"
#endif

namespace di::engine {

std::unique_ptr<Device> make_device(const DeviceParts& parts) {
#if DI_HAS_CUDA
  if (!parts.ops.memory().is_host()) return std::make_unique<cuda::CudaDevice>(parts);
#endif
  return std::make_unique<ModelDevice>(parts);
}

}  // namespace di::engine
