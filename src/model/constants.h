// Constants: small arrays that are derived on the processor and read by ops.
#pragma once

#include <memory>
#include <vector>

#include "tensor/memory.h"
#include "tensor/view.h"

namespace di::model {

/// Owns copies of arrays in a backend's memory.
class Constants {
 public:
  /// A copy of `values` that lives as long as this object.
  template <class T>
  View<const T, 1> keep(const Memory& memory, const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    copies_.push_back(memory.allocate(bytes, "constants of the model"));
    memory.copy(copies_.back().get(), values.data(), bytes, nullptr);
    memory.wait(nullptr);
    return View<const T, 1>(reinterpret_cast<const T*>(copies_.back().get()), values.size());
  }

 private:
  std::vector<std::shared_ptr<std::byte>> copies_;
};

}  // namespace di::model
