// The indexer's kernels, written once over a vector type KeyLanes: a register of 32-bit lanes, one
// for each key. For kernel files only, which define it first. All is in an unnamed namespace, so
// that each instruction set keeps its own version.
//
// KeyLanes has: Words (the register), Partial (a sum of products on its way), Halves (two registers
// of doubles); kCount lanes; load, broadcast, zero, dot (adds four products to every lane), finish
// (Partial to Words), add, shift_left, and the fp32 steps of a score.
#pragma once

#include <immintrin.h>

#include "ops/cpu/index_kernels.h"

namespace di::ops::cpu {
namespace {

/// Lanes of eight keys while packing.
struct Octet {
  __m256i word[4];  // word w of a group's 16 bytes, for each key
};

/// Transposes 16 bytes of eight keys.
inline Octet load_octet(const uint8_t* const* keys, int64_t offset) {
  __m256i pair[4];  // keys i and i + 4
  for (int i = 0; i < 4; ++i) {
    const auto low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys[i] + offset));
    const auto high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keys[i + 4] + offset));
    pair[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
  const __m256i a = _mm256_unpacklo_epi32(pair[0], pair[1]);
  const __m256i b = _mm256_unpackhi_epi32(pair[0], pair[1]);
  const __m256i c = _mm256_unpacklo_epi32(pair[2], pair[3]);
  const __m256i d = _mm256_unpackhi_epi32(pair[2], pair[3]);
  return {
      {_mm256_unpacklo_epi64(a, c),
       _mm256_unpackhi_epi64(a, c),
       _mm256_unpacklo_epi64(b, d),
       _mm256_unpackhi_epi64(b, d)}};
}

/// Writes the values plus 12 of one word of eight keys: its even columns, then its odd ones.
inline void store_values(__m256i word, uint8_t* out) {
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
  );
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i even = _mm256_and_si256(word, nibble);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(word, 4), nibble);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_shuffle_epi8(table, even));
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(out + kKeyTile * 4), _mm256_shuffle_epi8(table, odd)
  );
}

/// All ones in the lanes whose 32 codes are zeros of either sign.
inline __m256i is_zero(const Octet& codes) {
  const __m256i any = _mm256_or_si256(
      _mm256_or_si256(codes.word[0], codes.word[1]), _mm256_or_si256(codes.word[2], codes.word[3])
  );
  const __m256i magnitudes = _mm256_and_si256(any, _mm256_set1_epi32(0x77777777));
  return _mm256_cmpeq_epi32(magnitudes, _mm256_setzero_si256());
}

/// Scales of group `group` of eight keys.
inline __m256i load_scales(const uint8_t* const* scales, int64_t group) {
  const auto at = [&](int key) { return static_cast<int>(scales[key][group]); };
  return _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}

inline int32_t lowest(__m256i x) {
  alignas(32) int32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), x);
  int32_t low = lane[0];
  for (const int32_t value : lane)
    low = value < low ? value : low;
  return low;
}

inline int32_t highest(__m256i x) {
  return -lowest(_mm256_sub_epi32(_mm256_setzero_si256(), x));
}

/// Units and shifts of eight keys from the scales that pack_octet left in `shifts`, 256 standing
/// for a group of zeros.
inline void pack_scales(int64_t groups, int32_t* shifts, float* units, Spread& spread) {
  const __m256i none = _mm256_set1_epi32(256);
  __m256i unit = none;
  for (int64_t g = 0; g < groups; ++g) {
    const auto* at = reinterpret_cast<const __m256i*>(shifts + g * kKeyTile);
    unit = _mm256_min_epi32(unit, _mm256_loadu_si256(at));
  }
  unit = _mm256_blendv_epi8(unit, _mm256_set1_epi32(127), _mm256_cmpeq_epi32(unit, none));
  __m256i top = unit;
  for (int64_t g = 0; g < groups; ++g) {
    auto* at = reinterpret_cast<__m256i*>(shifts + g * kKeyTile);
    const __m256i stored = _mm256_loadu_si256(at);
    const __m256i scale = _mm256_blendv_epi8(stored, unit, _mm256_cmpeq_epi32(stored, none));
    top = _mm256_max_epi32(top, scale);
    _mm256_storeu_si256(at, _mm256_sub_epi32(scale, unit));
  }
  const __m256i exponent = _mm256_sub_epi32(unit, _mm256_set1_epi32(1));
  _mm256_storeu_ps(units, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  const int32_t low = lowest(unit);
  const int32_t high = highest(top);
  const int32_t shift = highest(_mm256_sub_epi32(top, unit));
  spread.low = low < spread.low ? low : spread.low;
  spread.high = high > spread.high ? high : spread.high;
  spread.shift = shift > spread.shift ? shift : spread.shift;
}

inline void pack_keys(
    const uint8_t* const* codes, const uint8_t* const* scales, int64_t dim, KeyTile& tile
) {
  const int64_t groups = dim / kIndexGroup;
  tile.spread = {.low = 255, .high = 0, .shift = 0};
  for (int64_t key = 0; key < kKeyTile; key += 8) {
    for (int64_t g = 0; g < groups; ++g) {
      const Octet octet = load_octet(codes + key, g * 16);
      for (int64_t w = 0; w < 4; ++w)
        store_values(octet.word[w], tile.codes + ((g * 8 + w * 2) * kKeyTile + key) * 4);
      const __m256i scale =
          _mm256_blendv_epi8(load_scales(scales + key, g), _mm256_set1_epi32(256), is_zero(octet));
      auto* at = reinterpret_cast<__m256i*>(tile.shifts + g * kKeyTile + key);
      _mm256_storeu_si256(at, scale);
    }
    pack_scales(groups, tile.shifts + key, tile.units + key, tile.spread);
  }
}

/// kVectors registers of keys times kHeads heads: one exact integer for each pair.
template <int kVectors, int kHeads>
struct IndexDots {
  using Words = KeyLanes::Words;
  Words dot[kVectors][kHeads];

  __attribute__((always_inline)) void add_group(
      const KeyTile& tile,
      const IndexQuery& query,
      int64_t key,
      int64_t head,
      int64_t dim,
      int64_t g
  ) {
    KeyLanes::Partial partial[kVectors][kHeads];
    for (auto& row : partial) {
      for (auto& sum : row)
        sum = KeyLanes::zero();
    }
    for (int64_t c = g * 8; c < g * 8 + 8; ++c) {
      Words keys[kVectors];
      for (int v = 0; v < kVectors; ++v)
        keys[v] = KeyLanes::load(tile.codes + (c * kKeyTile + key + v * KeyLanes::kCount) * 4);
      for (int h = 0; h < kHeads; ++h) {
        const Words q = KeyLanes::broadcast(query.values + (head + h) * dim + c * 4);
        for (int v = 0; v < kVectors; ++v)
          partial[v][h] = KeyLanes::dot(partial[v][h], keys[v], q);
      }
    }
    const int64_t groups = dim / kIndexGroup;
    for (int v = 0; v < kVectors; ++v) {
      const Words key_shift =
          KeyLanes::load(tile.shifts + g * kKeyTile + key + v * KeyLanes::kCount);
      for (int h = 0; h < kHeads; ++h) {
        const int64_t at = (head + h) * groups + g;
        const Words exact =
            KeyLanes::add(KeyLanes::finish(partial[v][h]), KeyLanes::broadcast(query.bias[at]));
        const Words shift = KeyLanes::add(key_shift, KeyLanes::broadcast(query.shifts[at]));
        dot[v][h] = KeyLanes::add(dot[v][h], KeyLanes::shift_left(exact, shift));
      }
    }
  }

  __attribute__((always_inline)) void run(
      const KeyTile& tile, const IndexQuery& query, int64_t key, int64_t head, int64_t dim
  ) {
    for (auto& row : dot) {
      for (Words& sum : row)
        sum = KeyLanes::broadcast(0);
    }
    for (int64_t g = 0; g < dim / kIndexGroup; ++g)
      add_group(tile, query, key, head, dim, g);
  }
};

/// Scores of the keys of kVectors registers. The head sum is kept in double, heads ascending.
template <int kVectors>
inline void score_keys(
    const KeyTile& tile,
    const IndexQuery& query,
    int64_t heads,
    int64_t dim,
    int64_t key,
    float* scores
) {
  KeyLanes::Halves sum[kVectors];
  for (auto& s : sum)
    s = KeyLanes::no_sum();
  const auto add_head = [&](int v, KeyLanes::Words dot, int64_t head)
      __attribute__((always_inline)) {
    const float* units = tile.units + key + v * KeyLanes::kCount;
    const auto term = KeyLanes::term(dot, units, query.units[head], query.weights[head]);
    sum[v] = KeyLanes::add(sum[v], term);
  };
  int64_t head = 0;
  for (; head + 2 <= heads; head += 2) {
    IndexDots<kVectors, 2> dots;
    dots.run(tile, query, key, head, dim);
    for (int h = 0; h < 2; ++h) {
      for (int v = 0; v < kVectors; ++v)
        add_head(v, dots.dot[v][h], head + h);
    }
  }
  if (head < heads) {
    IndexDots<kVectors, 1> dots;
    dots.run(tile, query, key, head, dim);
    for (int v = 0; v < kVectors; ++v)
      add_head(v, dots.dot[v][0], head);
  }
  for (int v = 0; v < kVectors; ++v)
    KeyLanes::store_score(scores + key + v * KeyLanes::kCount, sum[v]);
}

inline void score_tile(
    const KeyTile& tile, const IndexQuery& query, int64_t heads, int64_t dim, float* scores
) {
  constexpr int kVectors = KeyLanes::kCount == 8 ? 2 : 4;
  for (int64_t key = 0; key < kKeyTile; key += kVectors * KeyLanes::kCount)
    score_keys<kVectors>(tile, query, heads, dim, key, scores);
}

inline constexpr IndexKernels kIndex = {.pack = pack_keys, .score = score_tile};

}  // namespace
}  // namespace di::ops::cpu
