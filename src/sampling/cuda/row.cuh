// A CTA's part of a row of logits in shared memory, as the model gave it and as the request's edits
// make it.
#pragma once

#include <cmath>
#include <cstdint>

#include "sampling/cuda/block.cuh"
#include "sampling/cuda/slot.h"

namespace di::sampling::cuda {

inline constexpr int kCtas = 8;  ///< that share a row

/// The order of tokens as a number: a better logit has a smaller one, both zeros have the same.
__device__ inline uint64_t rank_of(double logit) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(logit + 0.0));
  return bits >> 63 != 0 ? bits : ~(bits | uint64_t{1} << 63);
}

/// The logit whose rank this is.
__device__ inline double logit_of(uint64_t rank) {
  const uint64_t bits = rank >> 63 != 0 ? rank : ~rank & ~(uint64_t{1} << 63);
  return __longlong_as_double(static_cast<long long>(bits));
}

/// The bias of a token, 0 when it has none.
__device__ inline double bias_of(const SlotParams& params, int32_t token) {
  int64_t first = 0;
  int64_t last = params.num_biases - 1;
  while (first < last) {
    const int64_t middle = (first + last) / 2;
    if (params.bias[middle].token < token) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  const LogitBias& bias = params.bias[first];
  return bias.token == token ? static_cast<double>(bias.bias) : 0;
}

/// Drafts before a row, which are not counted yet.
struct Ahead {
  const int32_t* tokens = nullptr;  ///< each `stride` behind the one before
  int count = 0;
  int stride = 1;

  /// How often `token` is among them.
  __device__ uint32_t times(int32_t token) const {
    uint32_t times = 0;
    for (int i = 0; i < count; ++i)
      times += tokens[i * stride] == token ? 1 : 0;
    return times;
  }
};

/// Tokens [begin, begin + size) of a row.
struct RowPart {
  const float* given;  ///< in device memory: the logits of token `begin` and those behind it
  float* logits;       ///< shared; banned ones are −∞ here, and up to three behind the last
  uint32_t* bits;      ///< shared, one for each token: it has a bias or is ahead
  const SlotParams* params;  ///< shared
  const Ahead* ahead;        ///< shared
  int begin;
  int size;
  bool is_penalised = false;  ///< from here on logit() counts penalties,
  bool is_biased = false;     ///< biases,
  bool has_bits = false;      ///< and looks at the bits

  /// The logit of token begin + i in double, after the edits that are switched on.
  __device__ double logit(int i) const {
    const double logit = logits[i];
    return is_penalised || is_biased ? edited(logit, i) : logit;
  }

  /// logit() of four neighbours from `first`, a multiple of 4; −∞ where there is none.
  __device__ void four_logits(int first, double (&result)[4]) const {
    if (first + 4 <= size) {
      const float4 four = *reinterpret_cast<const float4*>(logits + first);
      result[0] = four.x;
      result[1] = four.y;
      result[2] = four.z;
      result[3] = four.w;
      const bool has_bit = has_bits && (bits[first / 32] >> first % 32 & 15) != 0;
      if (!is_penalised && !has_bit) return;
      if (!has_bit && (reinterpret_cast<uintptr_t>(params->seen) + (begin + first) * 4) % 16 == 0) {
        const uint4 seen = *reinterpret_cast<const uint4*>(params->seen + begin + first);
        if ((seen.x | seen.y | seen.z | seen.w) == 0) return;
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      result[k] = first + k < size ? logit(first + k) : -static_cast<double>(INFINITY);
  }

  /// Calls use(part, first, logits) for the fours of this thread; `part` is this one, in registers.
  template <class Use>
  __device__ void each_four(const Use& use) const {
    const RowPart part = *this;
    for (int first = 4 * threadIdx.x; first < part.size; first += 4 * kThreads) {
      double logits[4];
      part.four_logits(first, logits);
      use(part, first, logits);
    }
  }

  /// Four neighbours without penalties and biases.
  __device__ float4 four_as_given(int first) const {
    return *reinterpret_cast<const float4*>(logits + first);
  }

  /// A logit after penalties and biases.
  __device__ __noinline__ double edited(double logit, int i) const {
    const int32_t token = begin + i;
    const bool has_bit = has_bits && (bits[i / 32] >> i % 32 & 1) != 0;
    uint32_t seen = is_penalised ? params->seen[token] : 0;
    if (is_penalised && has_bit) seen += ahead->times(token);
    if (seen != 0) {
      logit = logit > 0 ? logit / params->repetition_penalty : logit * params->repetition_penalty;
      const uint32_t outputs = seen & ~kInPrompt;
      if (outputs != 0) {
        logit -= params->frequency_penalty * static_cast<double>(outputs);
        logit -= params->presence_penalty;
      }
    }
    return is_biased && has_bit ? logit + bias_of(*params, token) : logit;
  }

  /// Calls use(i) for each id of the list that lies in this part.
  template <class Use>
  __device__ void for_own(const TokenList& list, const Use& use) const {
    for (int64_t n = threadIdx.x; n < list.count; n += kThreads) {
      const int i = list.ids[n] - begin;
      if (i >= 0 && i < size) use(i);
    }
  }

  __device__ void clear_bits() const {
    for (int word = threadIdx.x; word < (size + 31) / 32; word += kThreads)
      bits[word] = 0;
    __syncthreads();
  }

  __device__ void ban(const TokenList& list) const {
    for_own(list, [&](int i) { logits[i] = -INFINITY; });
  }

  __device__ void keep_allowed() const {
    clear_bits();
    for_own(params->allowed, [&](int i) { atomicOr(&bits[i / 32], 1u << i % 32); });
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += kThreads) {
      if ((bits[i / 32] >> i % 32 & 1) == 0) logits[i] = -INFINITY;
    }
    __syncthreads();
  }

  /// Leaves tokens out, behind the next barrier.
  __device__ void leave_out(const TokenList& tokens) const {
    ban(tokens);
  }

  /// Makes the edits of LogitEdits::apply; they are complete behind the next barrier.
  __device__ void edit(int64_t num_outputs) {
    const bool bans_ends = num_outputs < params->min_tokens;
    const bool bans_eos =
        num_outputs < params->first_n_token_no_eos || (bans_ends && !params->ignore_eos);
    if (params->allowed.count > 0) keep_allowed();
    ban(params->banned);
    if (bans_ends) ban(params->stops);
    const int eos = params->eos - begin;
    if (bans_eos && threadIdx.x == 0 && eos >= 0 && eos < size) logits[eos] = -INFINITY;
    is_penalised = params->seen != nullptr;
    is_biased = params->num_biases > 0;
    has_bits = is_biased || (is_penalised && ahead->count > 0);
    if (!has_bits) return;
    clear_bits();
    const auto set_bit = [&](int32_t token) {
      const int i = token - begin;
      if (i >= 0 && i < size) atomicOr(&bits[i / 32], 1u << i % 32);
    };
    for (int64_t n = threadIdx.x; n < params->num_biases; n += kThreads)
      set_bit(params->bias[n].token);
    const auto own = static_cast<int>(threadIdx.x);
    if (is_penalised && own < ahead->count) set_bit(ahead->tokens[own * ahead->stride]);
  }
};

/// Whether edit() changes anything after so many outputs.
__device__ inline bool has_edits(const SlotParams& params, int64_t num_outputs) {
  return params.seen != nullptr || params.num_biases > 0 || params.allowed.count > 0 ||
         params.banned.count > 0 || num_outputs < params.min_tokens ||
         num_outputs < params.first_n_token_no_eos;
}

}  // namespace di::sampling::cuda
