// LoadedModel: a checkpoint with its tokenizer and weights, ready for a backend. What every front
// that runs a model shares.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "engine/options.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace di::engine {

/// The model folder meant by `model`: as given, or models/seedling of the working folder, or of the
/// source tree that this program was built in. Throws Error{kNotFound} naming the places tried.
std::string find_model(const std::string& model);

/// The op table of a backend, "cpu", "cuda" or "ref"; of cpu with kernels for `isa` ("auto": the
/// best that this processor has), of cuda with the given arithmetic, "fast" or "canonical". Throws
/// Error{kUnsupported} or Error{kInvalidArgument}.
const ops::OpTable& select_ops(
    const std::string& backend, const std::string& isa, const std::string& cuda_arithmetic = "fast"
);

/// The table that an engine with these options runs on.
const ops::OpTable& select_ops(const EngineOptions& options);

/// An open checkpoint, and the parts that are loaded from it.
struct LoadedModel {
  std::unique_ptr<checkpoint::Checkpoint> checkpoint;
  std::unique_ptr<text::Tokenizer> tokenizer;
  model::Model model;
};

/// Opens and checks a folder; reads no weight. Throws for what is wrong with it.
std::unique_ptr<checkpoint::Checkpoint> open_checkpoint(
    const std::string& folder, ThreadPool& pool
);

/// Loads tokenizer and weights; `options` say which, and where they lie.
LoadedModel load(
    std::unique_ptr<checkpoint::Checkpoint> checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const model::LoadOptions& options = {}
);

}  // namespace di::engine
