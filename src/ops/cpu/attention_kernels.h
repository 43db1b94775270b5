// What an instruction set provides for sparse attention: the leaves of the computation. The order
// of the work, the lists of entries and the threads are written once, in attention.cc.
//
// The lanes of every kernel are heads, eight to a group: a lane adds its products in ascending
// order of channel (logits) or of entry (values) into one double, which is the canonical order
// whatever the width of a register. Files in avx2/ and avx512/ include this header and no other
// header of ours that holds inline functions (kernels.h says why).
#pragma once

#include <cstdint>

namespace di::ops::cpu {

/// Heads that travel together.
inline constexpr int64_t kHeadGroup = 8;

/// List entries that share one running maximum.
inline constexpr int64_t kAttentionBlock = 64;

/// Channels [begin, end) of a record; multiples of 32.
struct Channels {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Decoded entries: channel c of entry i is values[i · stride + c].
struct EntryTile {
  const double* values;
  int64_t stride;
  int64_t count;  ///< entries, at most kAttentionBlock
};

/// logits[g][i][lane] = fl32(q · entry i) · scale.
struct ScoreBlock {
  EntryTile entries;
  const double* q;  ///< [groups][dim][kHeadGroup]
  int64_t dim;
  int64_t groups;
  float scale;
  float* logits;  ///< [groups][kAttentionBlock][kHeadGroup]
};

/// The running softmax of one group of heads.
struct SoftmaxState {
  float top[kHeadGroup];
  float denominator[kHeadGroup];
};

/// One block of one group: p = bf16(exp(logit − new top)), and decay = exp(old top − new top).
struct SoftmaxBlock {
  const float* logits;  ///< [count][kHeadGroup]
  int64_t count;
  SoftmaxState* state;
  double* p;     ///< [count][kHeadGroup]
  float* decay;  ///< [kHeadGroup]
};

/// sums[g][c][lane] = sums · decay + fl32(Σ_i p_i · value_ic).
struct MixBlock {
  EntryTile entries;
  const double* p;     ///< [groups] of [entries.count][kHeadGroup], `p_stride` apart
  const float* decay;  ///< [groups][kHeadGroup]
  int64_t p_stride;
  int64_t channels;
  int64_t groups;
  float* sums;  ///< [groups][channels][kHeadGroup]
};

/// The kernels of one instruction set. Results are bit-identical between sets.
struct AttentionKernels {
  /// Decodes channels of one FP8 record (E4M3 [dim], E8M0 [dim / 32]) to out[0 ...).
  void (*decode_fp8)(const uint8_t* record, int64_t dim, Channels channels, double* out);
  /// The same of an FP4 record (E2M1 [dim / 2], E4M3 [dim / 16]); `e4m3` holds all 256 values.
  void (*decode_fp4
  )(const uint8_t* record, int64_t dim, Channels channels, const float* e4m3, double* out);
  void (*score)(const ScoreBlock& block);
  void (*softmax)(const SoftmaxBlock& block);
  void (*mix)(const MixBlock& block);
  /// out[c][lane] = bf16 bits of sums[c][lane] / denominator[lane].
  void (*finish)(const float* sums, const float* denominator, int64_t channels, uint16_t* out);
};

extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;

}  // namespace di::ops::cpu
