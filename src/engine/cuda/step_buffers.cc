#include "engine/cuda/step_buffers.h"

#include "ops/cuda/memory.h"

namespace di::engine::cuda {
namespace {

std::shared_ptr<std::byte> pinned(int64_t bytes) {
  return ops::cuda::pinned_memory().allocate(bytes, "what a step and its results are passed in");
}

}  // namespace

sampling::cuda::Drawn results_in(std::byte* memory, const ResultShape& shape) {
  const auto [rows, most] = shape;
  auto* tokens = reinterpret_cast<int32_t*>(memory);
  auto* logprobs = reinterpret_cast<float*>(tokens + rows);
  auto* top_tokens = reinterpret_cast<int32_t*>(logprobs + rows);
  auto* top_logprobs = reinterpret_cast<float*>(top_tokens + rows * most);
  auto* finite = reinterpret_cast<uint8_t*>(top_logprobs + rows * most);
  return {
      .tokens = View<int32_t, 1>(tokens, rows),
      .logprobs = View<float, 1>(logprobs, rows),
      .finite = View<uint8_t, 1>(finite, rows),
      .top_tokens = View<int32_t, 2>(top_tokens, rows, most),
      .top_logprobs = View<float, 2>(top_logprobs, rows, most)};
}

int64_t planned_result_bytes(int64_t rows) {
  return ResultShape{rows, 20}.bytes();
}

StepBuffers::StepBuffers()
    : staging_(pinned(2 * model::kStagingBytes)), uploads_(ops::cuda::pinned_memory()) {
  in_use_.emplace(uploads_);
}

void StepBuffers::begin() {
  in_use_.reset();
  in_use_.emplace(uploads_);
}

void StepBuffers::reserve(int64_t result_bytes, int64_t sequences) {
  if (result_bytes > result_bytes_) {
    result_bytes_ = 2 * result_bytes;
    results_ = pinned(result_bytes_);
  }
  if (sequences > finite_bytes_) {
    finite_bytes_ = 2 * sequences;
    finite_ = pinned(finite_bytes_);
  }
}

void StepBuffers::reserve_drafts(int64_t bytes) {
  if (bytes <= draft_bytes_) return;
  draft_bytes_ = 2 * bytes;
  drafts_ = pinned(draft_bytes_);
}

}  // namespace di::engine::cuda
