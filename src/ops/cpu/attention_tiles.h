// The attention kernels, written once over the vector type Lanes. For kernel files only; include
// after the lanes.h of the instruction set. All is in an unnamed namespace, so that each
// instruction set keeps its own version.
//
// Both products are the same tile: out[n][head] = Σ_k a[n][k] · b[k][head], with `a` the decoded
// entries (n an entry and k a channel for logits, the other way round for values) read one number
// at a time and broadcast, and `b` one register of heads. All products are exact in double (8
// significant bits of q or p, at most 6 of an entry), so a fused multiply-add rounds like the
// separate steps of the reference.
#pragma once

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/lanes_exp.h"

namespace di::ops::cpu {
namespace {

using Doubles = Lanes::Doubles;
using Floats = Lanes::Floats;

/// Registers that hold one group of heads.
inline constexpr int kParts = kHeadGroup / Lanes::kCount;

/// The operands of a tile product.
struct Operands {
  const double* a;
  int64_t n_step;  ///< from a[n][k] to a[n + 1][k]
  int64_t k_step;
  const double* b;  ///< [k][kHeadGroup] of the first group
  int64_t b_group;  ///< from one group to the next
  int64_t depth;    ///< how many k
};

/// kN × kGroups groups of heads in registers; `put(n, group, part, sum)` takes the results.
template <int kN, int kGroups, class Put>
__attribute__((always_inline)) inline void multiply_tile(
    const Operands& x, int64_t n0, int64_t group0, const Put& put
) {
  constexpr int kRegisters = kGroups * kParts;
  Doubles acc[kN][kRegisters];
  for (auto& row : acc) {
    for (auto& sum : row)
      sum = Lanes::zero();
  }
  const double* a = x.a + n0 * x.n_step;
  const double* b = x.b + group0 * x.b_group;
  for (int64_t k = 0; k < x.depth; ++k) {
    Doubles heads[kRegisters];
    for (int r = 0; r < kRegisters; ++r)
      heads[r] = Lanes::load(b + r / kParts * x.b_group + r % kParts * Lanes::kCount);
    for (int n = 0; n < kN; ++n) {
      const Doubles value = Lanes::broadcast(a[n * x.n_step]);
      for (int r = 0; r < kRegisters; ++r)
        acc[n][r] = Lanes::fma(value, heads[r], acc[n][r]);
    }
    a += x.k_step;
    b += kHeadGroup;
  }
  for (int n = 0; n < kN; ++n) {
    for (int r = 0; r < kRegisters; ++r)
      put(n0 + n, group0 + r / kParts, r % kParts, acc[n][r]);
  }
}

/// All n of `count` for kGroups groups: full tiles, then what is left.
template <int kN, int kGroups, class Put>
inline void multiply_columns(const Operands& x, int64_t count, int64_t group0, const Put& put) {
  int64_t n = 0;
  for (; n + kN <= count; n += kN)
    multiply_tile<kN, kGroups>(x, n, group0, put);
  for (; n + 2 <= count; n += 2)
    multiply_tile<2, kGroups>(x, n, group0, put);
  if (n < count) multiply_tile<1, kGroups>(x, n, group0, put);
}

/// Tile sizes that keep the multiply-add units busy: enough sums to hide the latency, few enough
/// for the registers (16 or 32).
template <class Put>
inline void multiply(const Operands& x, int64_t count, int64_t groups, const Put& put) {
  constexpr int kTileN = Lanes::kCount == 4 ? 6 : 8;
  int64_t group = 0;
  if constexpr (kParts == 1) {
    for (; group + 2 <= groups; group += 2)
      multiply_columns<kTileN, 2>(x, count, group, put);
  }
  for (; group < groups; ++group)
    multiply_columns<kTileN, 1>(x, count, group, put);
}

inline float e8m0_value(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline void decode_fp8(const uint8_t* record, int64_t dim, Channels channels, double* out) {
  for (int64_t c = channels.begin; c < channels.end; c += 32) {
    const Floats scale = Lanes::broadcast(e8m0_value(record[dim + c / 32]));
    for (int64_t i = c; i < c + 32; i += Lanes::kCount) {
      const Floats value = Lanes::mul(Lanes::decode_e4m3(record + i), scale);
      Lanes::store(out + i - channels.begin, Lanes::widen(value));
    }
  }
}

/// Codes stand for halves: −12 ... 12.
inline void decode_fp4(
    const uint8_t* record, int64_t dim, Channels channels, const float* e4m3, double* out
) {
  const __m128i halves = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  const __m128i nibble = _mm_set1_epi8(15);
  for (int64_t c = channels.begin; c < channels.end; c += 16) {
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(record + c / 2));
    const __m128i even = _mm_and_si128(packed, nibble);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(packed, 4), nibble);
    alignas(16) int8_t values[16];
    _mm_store_si128(
        reinterpret_cast<__m128i*>(values), _mm_shuffle_epi8(halves, _mm_unpacklo_epi8(even, odd))
    );
    const Floats scale = Lanes::broadcast(0.5f * e4m3[record[dim / 2 + c / 16]]);
    for (int i = 0; i < 16; i += Lanes::kCount) {
      const Floats value = Lanes::mul(Lanes::from_bytes(values + i), scale);
      Lanes::store(out + c - channels.begin + i, Lanes::widen(value));
    }
  }
}

inline void score(const ScoreBlock& block) {
  const Operands operands = {
      .a = block.entries.values,
      .n_step = block.entries.stride,
      .k_step = 1,
      .b = block.q,
      .b_group = block.dim * kHeadGroup,
      .depth = block.dim};
  const Floats scale = Lanes::broadcast(block.scale);
  multiply(
      operands,
      block.entries.count,
      block.groups,
      [&](int64_t entry, int64_t group, int part, Doubles dot) __attribute__((always_inline)) {
        float* out = block.logits + (group * kAttentionBlock + entry) * kHeadGroup;
        Lanes::store(out + part * Lanes::kCount, Lanes::mul(Lanes::narrow(dot), scale));
      }
  );
}

inline void softmax(const SoftmaxBlock& block) {
  for (int64_t lane = 0; lane < kHeadGroup; lane += Lanes::kCount) {
    const Floats old_top = Lanes::load(block.state->top + lane);
    Floats top = old_top;
    for (int64_t i = 0; i < block.count; ++i)
      top = Lanes::max(Lanes::load(block.logits + i * kHeadGroup + lane), top);
    const Floats decay = exp_lanes<Lanes>(Lanes::sub(old_top, top));
    Doubles total = Lanes::zero();
    for (int64_t i = 0; i < block.count; ++i) {
      const Floats logit = Lanes::load(block.logits + i * kHeadGroup + lane);
      const Floats p = exp_lanes<Lanes>(Lanes::sub(logit, top));
      total = Lanes::add(total, Lanes::widen(p));
      Lanes::store(block.p + i * kHeadGroup + lane, Lanes::widen(Lanes::round_bf16(p)));
    }
    const Floats old = Lanes::mul(Lanes::load(block.state->denominator + lane), decay);
    Lanes::store(block.state->denominator + lane, Lanes::add(old, Lanes::narrow(total)));
    Lanes::store(block.state->top + lane, top);
    Lanes::store(block.decay + lane, decay);
  }
}

inline void mix(const MixBlock& block) {
  const Operands operands = {
      .a = block.entries.values,
      .n_step = 1,
      .k_step = block.entries.stride,
      .b = block.p,
      .b_group = block.p_stride,
      .depth = block.entries.count};
  multiply(
      operands,
      block.channels,
      block.groups,
      [&](int64_t channel, int64_t group, int part, Doubles mixed) __attribute__((always_inline)) {
        float* sum =
            block.sums + (group * block.channels + channel) * kHeadGroup + part * Lanes::kCount;
        const Floats decay = Lanes::load(block.decay + group * kHeadGroup + part * Lanes::kCount);
        const Floats kept = Lanes::mul(Lanes::load(sum), decay);
        Lanes::store(sum, Lanes::add(kept, Lanes::narrow(mixed)));
      }
  );
}

inline void finish(const float* sums, const float* denominator, int64_t channels, uint16_t* out) {
  for (int64_t lane = 0; lane < kHeadGroup; lane += Lanes::kCount) {
    const Floats divisor = Lanes::load(denominator + lane);
    for (int64_t c = 0; c < channels; ++c) {
      const Floats mean = Lanes::div(Lanes::load(sums + c * kHeadGroup + lane), divisor);
      Lanes::store_bf16(out + c * kHeadGroup + lane, Lanes::round_bf16(mean));
    }
  }
}

inline constexpr AttentionKernels kAttention = {
    .decode_fp8 = decode_fp8,
    .decode_fp4 = decode_fp4,
    .score = score,
    .softmax = softmax,
    .mix = mix,
    .finish = finish,
};

}  // namespace
}  // namespace di::ops::cpu
