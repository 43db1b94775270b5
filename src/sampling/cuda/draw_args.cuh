// What the kernels of draw.h are given.
#pragma once

#include "sampling/cuda/draw.h"
#include "sampling/cuda/row.cuh"

namespace di::sampling::cuda {

/// Drawn as pointers.
struct Results {
  int32_t* tokens;
  float* logprobs;
  uint8_t* finite;
  int32_t* top_tokens;  ///< [rows, most]
  float* top_logprobs;
  int most;

  /// Token −1: the row is not finite.
  __device__ void write(int row, int32_t token, float logprob) const {
    tokens[row] = token;
    logprobs[row] = logprob;
    finite[row] = token < 0 ? 0 : 1;
  }
  __device__ void write_top(int row, int64_t i, int32_t token, float logprob) const {
    const int64_t at = static_cast<int64_t>(row) * most + i;
    top_tokens[at] = token;
    top_logprobs[at] = logprob;
  }
};

struct Args {
  const float* logits;
  int vocab_size;
  int part_size;
  const DrawRow* rows;      ///< draws
  const SlotParams* slots;  ///< draws
  const int32_t* tokens;    ///< scores
  const int32_t* tops;      ///< scores
  Results results;
};

}  // namespace di::sampling::cuda
