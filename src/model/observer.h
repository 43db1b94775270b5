// Observer: looks at (and may replace) intermediate tensors of a forward pass. For `verify`, for
// researchers, and for tests that isolate a layer; the pass itself never needs one.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::model {

/// A tensor of the pass, writable: what an observer writes is what the pass goes on with.
struct ObservedTensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Receives each named tensor right after it was computed, on the thread that runs the pass.
///
/// Names, per layer: h_in (after Engram), engram_ids, latent, index_topk, candidates, attn_out,
/// h_mid, expert_ids, expert_weights, ffn_out, h_out, pre_out; once, with layer −1: final_hidden,
/// main_hidden. Shapes: the model fixtures' README, section 3; rows are the step's rows that this
/// layer computes.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void observe(std::string_view name, int64_t layer, const ObservedTensor& tensor) = 0;
};

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::kBf16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}

}  // namespace di::model
