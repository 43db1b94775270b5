#include "engine/make_device.h"

#include "engine/model_device.h"

#if DI_HAS_CUDA
#include "engine/cuda/cuda_device.h"
#include "engine/cuda/step_rehearsal.h"
#endif

namespace di::engine {

std::unique_ptr<Device> make_device(const DeviceParts& parts) {
#if DI_HAS_CUDA
  if (!parts.ops.memory().is_host()) return std::make_unique<cuda::CudaDevice>(parts);
#endif
  return std::make_unique<ModelDevice>(parts);
}

std::optional<model::StepMemory> measure_steps(
    [[maybe_unused]] const checkpoint::Checkpoint& checkpoint,
    [[maybe_unused]] const ops::OpTable& ops,
    [[maybe_unused]] ThreadPool& pool,
    [[maybe_unused]] const StepLimits& limits
) {
#if DI_HAS_CUDA
  if (!ops.memory().is_host()) return cuda::StepRehearsal(checkpoint, ops, pool, limits).measure();
#endif
  return std::nullopt;
}

}  // namespace di::engine
