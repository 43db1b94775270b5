// The row kernels, written once over the vector type Lanes. For kernel files only; include after
// the lanes.h of the instruction set. All is in an unnamed namespace, so that each instruction set
// keeps its own version.
#pragma once

#include "ops/cpu/lanes_exp.h"
#include "ops/cpu/row_kernels.h"

namespace di::ops::cpu {
namespace {

using Doubles = Lanes::Doubles;
using Floats = Lanes::Floats;
inline constexpr int kLanes = Lanes::kCount;

inline void store_rounded(uint16_t* p, Floats x) {
  Lanes::store_bf16(p, Lanes::round_bf16(x));
}

/// interleaved_sum: partial sum i mod 16 is a lane of its own.
class InterleavedSum {
 public:
  /// `term(i)` gives terms i ... i + kLanes − 1, in fp32.
  template <class Term>
  static double of(int64_t width, const Term& term) {
    Doubles partial[kRegisters];
    for (Doubles& sum : partial)
      sum = Lanes::zero();
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) {
      for (int r = 0; r < kRegisters; ++r)
        partial[r] = Lanes::add(partial[r], Lanes::widen(term(i + r * kLanes)));
    }
    for (int r = 0; i < width; i += kLanes, ++r)
      partial[r] = Lanes::add(partial[r], Lanes::widen(term(i)));
    double sums[16];
    for (int r = 0; r < kRegisters; ++r)
      Lanes::store(sums + r * kLanes, partial[r]);
    for (int half = 8; half > 0; half /= 2) {
      for (int s = 0; s < half; ++s)
        sums[s] += sums[s + half];
    }
    return sums[0];
  }

 private:
  static constexpr int kRegisters = 16 / kLanes;
};

inline double sum_of_squares(const uint16_t* x, int64_t width) {
  return InterleavedSum::of(width, [x](int64_t i) {
    const Floats value = Lanes::load_bf16(x + i);
    return Lanes::mul(value, value);
  });
}

inline void apply_norm(
    uint16_t* y, const uint16_t* x, const uint16_t* weight, float factor, int64_t width
) {
  const Floats f = Lanes::broadcast(factor);
  for (int64_t i = 0; i < width; i += kLanes) {
    const Floats normal = Lanes::mul(Lanes::load_bf16(x + i), f);
    store_rounded(y + i, Lanes::mul(Lanes::load_bf16(weight + i), normal));
  }
}

inline double gate_dot(
    const uint16_t* h, const uint16_t* q, const uint16_t* k, const uint16_t* key, int64_t width
) {
  return InterleavedSum::of(width, [=](int64_t i) {
    const Floats weight = Lanes::mul(Lanes::load_bf16(q + i), Lanes::load_bf16(k + i));
    const Floats weighted = Lanes::mul(Lanes::load_bf16(h + i), weight);
    return Lanes::mul(weighted, Lanes::load_bf16(key + i));
  });
}

inline void add_scaled(uint16_t* h, const uint16_t* value, float gate, int64_t width) {
  const Floats g = Lanes::broadcast(gate);
  for (int64_t i = 0; i < width; i += kLanes) {
    const Floats added = Lanes::mul(g, Lanes::load_bf16(value + i));
    store_rounded(h + i, Lanes::add(Lanes::load_bf16(h + i), added));
  }
}

/// Σ_i fl32(weights[i · step] · h_i) at channel d, in double, streams ascending.
inline Floats mix_streams(
    const uint16_t* h, int64_t streams, int64_t stride, const float* weights, int64_t step
) {
  Doubles sum = Lanes::zero();
  for (int64_t i = 0; i < streams; ++i) {
    const Floats weight = Lanes::broadcast(weights[i * step]);
    sum = Lanes::add(sum, Lanes::widen(Lanes::mul(weight, Lanes::load_bf16(h + i * stride))));
  }
  return Lanes::narrow(sum);
}

inline void collapse(const CollapseRow& row) {
  for (int64_t d = 0; d < row.width; d += kLanes)
    store_rounded(row.x + d, mix_streams(row.h + d, row.streams, row.stride, row.a, 1));
}

/// expand with the streams of a channel in registers.
template <int kStreams>
inline void expand_streams(const ExpandRow& row) {
  for (int64_t d = 0; d < row.width; d += kLanes) {
    const Floats y = Lanes::load_bf16(row.y + d);
    Floats h[kStreams];
    for (int i = 0; i < kStreams; ++i)
      h[i] = Lanes::load_bf16(row.h + i * row.stride + d);
    for (int j = 0; j < kStreams; ++j) {
      Doubles sum = Lanes::zero();
      for (int i = 0; i < kStreams; ++i) {
        const Floats weight = Lanes::broadcast(row.comb[i * kStreams + j]);
        sum = Lanes::add(sum, Lanes::widen(Lanes::mul(weight, h[i])));
      }
      const Floats written = Lanes::mul(Lanes::broadcast(row.post[j]), y);
      store_rounded(row.out + j * row.stride + d, Lanes::add(written, Lanes::narrow(sum)));
    }
  }
}

inline void expand(const ExpandRow& row) {
  if (row.streams == 4) return expand_streams<4>(row);
  for (int64_t j = 0; j < row.streams; ++j) {
    const Floats post = Lanes::broadcast(row.post[j]);
    for (int64_t d = 0; d < row.width; d += kLanes) {
      const Floats mixed =
          mix_streams(row.h + d, row.streams, row.stride, row.comb + j, row.streams);
      const Floats written = Lanes::mul(post, Lanes::load_bf16(row.y + d));
      store_rounded(row.out + j * row.stride + d, Lanes::add(written, mixed));
    }
  }
}

/// silu_f32 of every lane: by the polynomial where that decides the rounding, else by libm.
inline Floats silu(Floats x) {
  const Floats far = Lanes::broadcast(80.0f);
  const Doubles wide = Lanes::widen(x);
  const Doubles e = exp_double<Lanes>(Lanes::sub(Lanes::zero(), wide));
  const Doubles y = Lanes::div(wide, Lanes::add(Lanes::broadcast(1.0), e));
  Floats result = Lanes::narrow(y);
  const unsigned doubtful = Lanes::near_midpoint(y) | Lanes::less(far, Lanes::abs(x));
  if (__builtin_expect(doubtful != 0, 0)) {
    float in[kLanes];
    float out[kLanes];
    Lanes::store(in, x);
    Lanes::store(out, result);
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = in[lane];
      if ((doubtful >> lane & 1) != 0) {
        out[lane] = static_cast<float>(value / (1.0 + std::exp(-value)));
      }
    }
    result = Lanes::load(out);
  }
  return result;
}

inline void swiglu(const SwiGluRow& row) {
  const Floats high = Lanes::broadcast(row.limit);
  const Floats low = Lanes::broadcast(-row.limit);
  for (int64_t i = 0; i < row.width; i += kLanes) {
    const Floats gate = Lanes::min(Lanes::load_bf16(row.gate + i), high);
    const Floats up = Lanes::min(Lanes::max(Lanes::load_bf16(row.up + i), low), high);
    Floats u = Lanes::mul(silu(gate), up);
    if (row.weight != nullptr) u = Lanes::mul(Lanes::broadcast(*row.weight), u);
    store_rounded(row.u + i, u);
  }
}

inline void rotate(uint16_t* x, const float* cosine, const float* sine, int64_t pairs) {
  for (int64_t pair = 0; pair < pairs; pair += kLanes) {
    const Floats c = Lanes::load(cosine + pair);
    const Floats s = Lanes::load(sine + pair);
    Floats a;
    Floats b;
    Lanes::load_bf16_pairs(x + 2 * pair, a, b);
    const Floats real = Lanes::sub(Lanes::mul(a, c), Lanes::mul(b, s));
    const Floats imaginary = Lanes::add(Lanes::mul(a, s), Lanes::mul(b, c));
    Lanes::store_bf16_pairs(x + 2 * pair, Lanes::round_bf16(real), Lanes::round_bf16(imaginary));
  }
}

/// The largest magnitude of 32 numbers, at least `floor`.
inline float largest(const uint16_t* x, float floor) {
  Floats top = Lanes::broadcast(floor);
  for (int i = 0; i < 32; i += kLanes)
    top = Lanes::max(top, Lanes::abs(Lanes::load_bf16(x + i)));
  float lane[kLanes];
  Lanes::store(lane, top);
  float result = lane[0];
  for (const float value : lane)
    result = value > result ? value : result;
  return result;
}

/// The E8M0 code of 2^⌈log2 x⌉ for a positive normal x.
inline uint8_t power_above(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0));
}

/// 2^-(code − 127) for 0 < code < 254: dividing by such a scale is multiplying by this.
inline Floats inverse_scale(uint8_t code) {
  const uint32_t bits = (254u - code) << 23;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return Lanes::broadcast(value);
}

inline void quantize_q8(const uint16_t* x, int64_t groups, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < groups; ++group, x += 32, codes += 32) {
    scales[group] = power_above(largest(x, 1e-4f) * (1.0f / 448.0f));
    const Floats inverse = inverse_scale(scales[group]);
    for (int i = 0; i < 32; i += kLanes)
      Lanes::store_e4m3(codes + i, Lanes::mul(Lanes::load_bf16(x + i), inverse));
  }
}

inline void quantize_q4m(const uint16_t* x, int64_t groups, uint8_t* codes, uint8_t* scales) {
  for (int64_t group = 0; group < groups; ++group, x += 32, codes += 16) {
    scales[group] = power_above(largest(x, 0x1.8p-124f) * (1.0f / 6.0f));
    const Floats inverse = inverse_scale(scales[group]);
    alignas(16) uint8_t nibbles[32];
    for (int i = 0; i < 32; i += kLanes)
      Lanes::store_e2m1(nibbles + i, Lanes::mul(Lanes::load_bf16(x + i), inverse));
    const __m128i pair = _mm_set1_epi16(0x1001);  // even + 16 · odd
    const auto* from = reinterpret_cast<const __m128i*>(nibbles);
    const __m128i low = _mm_maddubs_epi16(_mm_load_si128(from), pair);
    const __m128i high = _mm_maddubs_epi16(_mm_load_si128(from + 1), pair);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm_packus_epi16(low, high));
  }
}

inline void dequantize_fp8(
    const uint8_t* codes, const uint8_t* scales, int64_t groups, uint16_t* y
) {
  for (int64_t group = 0; group < groups; ++group) {
    const uint32_t bits = scales[group] == 0 ? 0x00400000u : uint32_t{scales[group]} << 23;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    const Floats scale = Lanes::broadcast(value);
    for (int64_t i = group * 32; i < group * 32 + 32; i += kLanes)
      store_rounded(y + i, Lanes::mul(Lanes::decode_e4m3(codes + i), scale));
  }
}

inline constexpr RowKernels kRows = {
    .sum_of_squares = sum_of_squares,
    .apply_norm = apply_norm,
    .gate_dot = gate_dot,
    .add_scaled = add_scaled,
    .collapse = collapse,
    .expand = expand,
    .swiglu = swiglu,
    .rotate = rotate,
    .quantize_q8 = quantize_q8,
    .quantize_q4m = quantize_q4m,
    .dequantize_fp8 = dequantize_fp8,
};

}  // namespace
}  // namespace di::ops::cpu
