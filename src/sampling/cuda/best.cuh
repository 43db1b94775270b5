// The best entry of a row: of equal logits the first token. A NaN or +∞ makes the row unusable, and
// so does nothing above −∞.
#pragma once

#include <cmath>
#include <cstdint>

#include "sampling/cuda/block.cuh"

namespace di::sampling::cuda {

inline constexpr int32_t kNoToken = 0x7fffffff;

/// The best entry of some tokens.
struct Best {
  double logit = -INFINITY;
  int32_t token = kNoToken;
  bool is_bad = false;  ///< a NaN or +∞ was seen

  __device__ bool is_usable() const { return !is_bad && logit > -INFINITY; }
  __device__ void add(const Best& other) {
    if (other.logit > logit || (other.logit == logit && other.token < token)) {
      logit = other.logit;
      token = other.token;
    }
  }
};

// A best entry of logits as the model gave them is one number, the larger the better: the logit's
// bits in their order, above those of the token from the last to the first.
inline constexpr uint32_t kBadLogit = 0xffffffffu;

__device__ inline Best best_of_code(uint64_t code) {
  const auto order = static_cast<uint32_t>(code >> 32);
  const uint32_t bits = order >> 31 != 0 ? order ^ 0x80000000u : ~order;
  return {
      static_cast<double>(__uint_as_float(bits)),
      kNoToken - static_cast<int32_t>(code & 0xffffffffu),
      order == kBadLogit};
}

/// The best code of a warp's threads, in all of them.
__device__ inline uint64_t best_of_warp(uint64_t code) {
  const auto order = static_cast<uint32_t>(code >> 32);
  const uint32_t best = __reduce_max_sync(kAllLanes, order);
  const uint32_t token = order == best ? static_cast<uint32_t>(code) : 0;
  return uint64_t{best} << 32 | __reduce_max_sync(kAllLanes, token);
}

/// What a thread has seen, in ascending order of places.
class BestOfThread {
 public:
  __device__ void look(float logit, int place) {
    is_fine_ = is_fine_ && logit < INFINITY;
    if (logit > logit_) {
      logit_ = logit;
      place_ = place;
    }
  }
  /// Four neighbours: rarely is one of them better.
  __device__ void look(const float4& four, int place) {
    is_fine_ = is_fine_ && four.x < INFINITY && four.y < INFINITY && four.z < INFINITY &&
               four.w < INFINITY;
    const float best = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
    if (!(best > logit_)) return;
    logit_ = best;
    place_ = place + (four.x == best ? 0 : four.y == best ? 1 : four.z == best ? 2 : 3);
  }
  /// Places count from token `begin`.
  __device__ uint64_t code(int begin) const {
    const uint32_t bits = __float_as_uint(logit_ + 0.0f);  // both zeros are equal
    const uint32_t order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    const int token = place_ == kNoToken ? kNoToken : begin + place_;
    return uint64_t{is_fine_ ? order : kBadLogit} << 32 | static_cast<uint32_t>(kNoToken - token);
  }

 private:
  float logit_ = -INFINITY;
  int place_ = kNoToken;
  bool is_fine_ = true;
};

}  // namespace di::sampling::cuda
