// The tensors that a model of a given configuration consists of: names, types and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "tensor/dtype.h"

namespace di::checkpoint {

/// What a tensor is for; the unit in which memory is reported.
enum class TensorKind {
  kEmbedding,  ///< token embedding, image markers, final norm and output head
  kDense,      ///< attention, norms, routers, shared experts, hyper-connections of the backbone
  kExperts,    ///< routed experts of the backbone
  kEngram,     ///< n-gram tables and their projections
  kDraft,      ///< everything of the draft stages
  kVision,     ///< image encoder and aligner
};

/// "embedding", "dense", "experts", "engram", "draft" or "vision".
std::string_view name_of(TensorKind kind);

/// One tensor that must be there.
struct ExpectedTensor {
  std::string name;  ///< without the prefix "model."
  DType dtype;
  std::vector<int64_t> shape;
  TensorKind kind;

  int64_t bytes() const;
};

/// Every tensor of the model, in the order of the forward pass.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

}  // namespace di::checkpoint
