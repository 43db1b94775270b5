// From rows of logits on the device to tokens there, without the host: the same bits as
// sampling::Sampler and score() (docs/sampling.md, "On the device").
//
// The same launches for any mixture of requests: what a row needs is read on the device, so they
// can be part of a recorded step.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "sampling/cuda/slot.h"
#include "tensor/view.h"

namespace di::sampling::cuda {

/// A row of a step to draw from.
struct DrawRow {
  int64_t position = 0;  ///< the token follows it
  int32_t slot = -1;     ///< of SlotParams; negative: nothing is drawn and nothing written
  bool is_plain =
      false;  ///< is_plainly_greedy() of the slot, told here so that it is known at once
  int32_t* place =
      nullptr;  ///< where the sequence keeps the token too, in device memory; or nullptr
};

/// Results, all in device memory or in pinned memory of the machine.
struct Drawn {
  View<int32_t, 1> tokens;      // [rows]; −1 when not finite
  View<float, 1> logprobs;      // [rows]; 0 when nobody asks
  View<uint8_t, 1> finite;      // [rows]: Draw::finite
  View<int32_t, 2> top_tokens;  // [rows, most]: best first, −1 behind the last; may be empty
  View<float, 2> top_logprobs;  // [rows, most]
};

/// Rows to draw from. At most one row of a slot in a call.
struct DrawRows {
  View<const float, 2> logits;      // [rows, vocab_size]
  View<const DrawRow, 1> rows;      // [rows]
  View<const SlotParams, 1> slots;  // num_outputs and seen are counted on
  Drawn drawn;
};

/// Rows whose tokens are given: prompt logprobs.
struct ScoreRows {
  View<const float, 2> logits;    // [rows, vocab_size]
  View<const int32_t, 1> tokens;  // [rows]; −1: nothing is written for the row
  View<const int32_t, 1> tops;    // [rows]: how many best tokens are reported
  Drawn drawn;
};

/// Throws Error{kUnsupported} when the vocabulary is too large for the kernel; so does score().
void check_vocabulary(int64_t vocab_size);

/// Draws and counts a token for each row. Enqueues two kernels on `stream`.
void draw(cudaStream_t stream, const DrawRows& rows);

/// The model's own logprob of each row's token, and the best tokens.
void score(cudaStream_t stream, const ScoreRows& rows);

}  // namespace di::sampling::cuda
