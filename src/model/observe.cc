// Tensors for the observer. One that lies in a device's memory is brought to the processor and
// taken back, since the pass goes on with what the observer leaves.
#include "model/activations.h"

namespace di::model {

void observe_bytes(const Pass& pass, std::string_view name, int64_t l, ObservedTensor tensor) {
  const Memory& memory = pass.arena().memory();
  if (memory.is_host()) {
    pass.options.observer->observe(name, l, tensor);
    return;
  }
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t size : tensor.shape)
    bytes *= size;
  std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
  void* origin = std::exchange(tensor.data, copy.data());
  memory.copy(copy.data(), origin, bytes, pass.exec.stream);
  memory.wait(pass.exec.stream);
  pass.options.observer->observe(name, l, tensor);
  memory.copy(origin, copy.data(), bytes, pass.exec.stream);
  memory.wait(pass.exec.stream);
}

}  // namespace di::model
