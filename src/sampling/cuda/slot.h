// What the device knows of a sequence that it draws for: SamplingParams as plain numbers and
// pointers into its memory, and what penalties and limits count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

#include "sampling/params.h"
#include "tensor/arena.h"

namespace di::sampling::cuda {

/// Token ids in device memory.
struct TokenList {
  const int32_t* ids = nullptr;
  int64_t count = 0;
};

/// One sequence's parameters; lies in device memory, one for each slot. Fields are those of
/// SamplingParams; docs/sampling.md says what they do.
struct SlotParams {
  double temperature = 1;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t top_k = 0;
  int64_t min_tokens = 0;
  int64_t first_n_token_no_eos = 0;
  int64_t top_logprobs = 0;
  uint64_t seed = 0;  ///< the choice's own
  int32_t eos = 0;
  bool ignore_eos = false;
  bool wants_logprobs = false;  ///< logprobs, or top_logprobs > 0
  bool processed_logprobs = false;
  TokenList allowed;
  TokenList banned;
  TokenList stops;
  TokenList golden;
  const LogitBias* bias = nullptr;  ///< in ascending order of tokens
  int64_t num_biases = 0;
  int64_t* num_outputs = nullptr;  ///< tokens drawn so far; a draw adds one
  uint32_t* seen =
      nullptr;  ///< [vocab_size]: times in the output, and kInPrompt; nullptr: no penalty
};

/// Flag of SlotParams::seen: the token is in the prompt. Set only where the repetition penalty is.
inline constexpr uint32_t kInPrompt = 0x80000000u;

/// Whether a request draws greedily, and nothing else, all of its life.
constexpr bool is_plainly_greedy(const SlotParams& params) {
  const bool is_edited = params.seen != nullptr || params.num_biases > 0 ||
                         params.allowed.count > 0 || params.banned.count > 0 ||
                         params.min_tokens > 0 || params.first_n_token_no_eos > 0;
  return params.temperature == 0 && !params.wants_logprobs && params.golden.count == 0 &&
         !is_edited;
}

/// Device memory that a slot has for whatever its SlotParams point to.
struct SlotArea {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

/// Bytes of an area that holds the counts of penalties and lists of some thousand tokens; a
/// sequence with longer lists gets memory of its own.
int64_t slot_area_bytes(int64_t vocab_size);

/// What one sequence's SlotParams point to. Built once for a sequence, and again after a
/// preemption; builds on the host and uploads.
class DeviceSlot {
 public:
  /// As sampling::Sampler: `prompt` is counted by the repetition penalty, `outputs` are the tokens
  /// that the choice has already. Uploads to `area`, behind what `stream` holds and without waiting
  /// for it, out of memory of `staging`, which is to be pinned and stay until the upload is done.
  DeviceSlot(
      const SamplingParams& params,
      int32_t eos,
      uint64_t seed,
      std::span<const int32_t> prompt,
      std::span<const int32_t> outputs,
      int64_t vocab_size,
      const SlotArea& area,
      Arena& staging,
      cudaStream_t stream
  );

  /// To be copied to the slot's place on the device. Points into the area, or memory of this
  /// object.
  const SlotParams& params() const { return params_; }

 private:
  SlotParams params_;
  std::shared_ptr<std::byte> own_;  // when the area is too small
};

}  // namespace di::sampling::cuda
