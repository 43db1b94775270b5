// What the roles of the expert kernel share: its operands, the work items that are handed out, and
// the plan of a CTA's shared memory.
//
// Roles of a CTA. Two consumer warpgroups multiply: 64 fragment rows of weights each, in registers,
// by a tile of tokens in shared memory. One loader thread hands out work and streams packed weights
// into a ring. The other producer warps expand the tokens' Q8 codes to bf16 into a second ring.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_lists.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"

namespace di::ops::cuda {

/// The packed matrices of one kind, of all routed experts at a constant distance, and of the shared
/// expert.
struct ExpertMatrix {
  const uint8_t* routed;
  int64_t stride;  ///< bytes from one expert to the next
  const uint8_t* shared;
};

/// Operands of the expert kernel, all in device memory.
struct ExpertArguments {
  ExpertLists lists;
  const uint8_t* x_codes;   // [rows, hidden]
  const uint8_t* x_scales;  // [rows, hidden / 32]
  uint8_t* u_codes;         // [positions, inner]
  uint8_t* u_scales;        // [positions, inner / 32]
  uint16_t* parts;          // [rows, k + 1, hidden] bf16
  ExpertMatrix gate, up, down;
  int experts;
  int hidden;
  int inner;
  int k;
  bool routed_fp8;
  bool shared_fp8;
  float limit;
};

/// One unit of work: 64 inner channels of gate and up (phase 1) or 128 hidden channels of down
/// (phase 2), for one tile of tokens.
struct WorkItem {
  int32_t phase;  ///< 1 or 2; 0: there is no more work
  int32_t expert;
  int32_t unit;  ///< of 64 inner channels or 128 hidden channels
  int32_t tile;  ///< index of the tile of tokens
  int32_t begin;
  int32_t count;
  int32_t tiles_of_expert;
};

inline constexpr int kConsumerWarps = 8;
inline constexpr int kConverterWarps = 3;
inline constexpr int kConverters = 32 * kConverterWarps;
inline constexpr int kExpertThreads = 32 * (kConsumerWarps + kConverterWarps + 1);
inline constexpr int kItemSlots = 4;

/// A slot of the weight ring: two row tiles, `kChunks` blocks of each.
template <bool kFp8>
struct WeightSlot {
  static constexpr int kChunks = kFp8 ? 1 : 2;
  static constexpr int kBlock = block_bytes(kFp8 ? WeightFormat::kFp8 : WeightFormat::kFp4);
  static constexpr int kSecond = kChunks * kBlock;  ///< offset of the second row tile
};
inline constexpr int kWeightSlotBytes = 8704;
static_assert(2 * WeightSlot<false>::kSecond <= kWeightSlotBytes);
static_assert(2 * WeightSlot<true>::kSecond <= kWeightSlotBytes);

/// A way to run the kernel: the widest tile of tokens, CTAs of one SM, the depths of the rings, and
/// the registers that a consuming and a producing thread have after they moved some.
template <
    bool kWide_,
    int kMaxTokens_,
    int kCtas_,
    int kWeightSlots_,
    int kTokenSlots_,
    int kConsumerRegisters_,
    int kProducerRegisters_>
struct ExpertShape {
  static constexpr bool kWide = kWide_;
  static constexpr int kMaxTokens = kMaxTokens_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kWeightSlots = kWeightSlots_;
  static constexpr int kTokenSlots = kTokenSlots_;
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = kProducerRegisters_;
  static constexpr int kTokenSlotBytes = kMaxTokens * 2 * kBlockCols;
  static constexpr int kStagePitch = 2 * kBlockRows + 16;  ///< bytes of a row of staged results
};

/// Few tokens: memory is the limit, warps multiply on their own, tiles of any width.
using NarrowExperts = ExpertShape<false, 64, 2, 8, 3, 80, 80>;
/// Many tokens: the tensor cores are the limit, warpgroups multiply, tiles of one width.
using Wide128Experts = ExpertShape<true, 128, 1, 10, 6, 184, 144>;
using Wide256Experts = ExpertShape<true, 256, 1, 6, 4, 208, 96>;

/// Tokens that the products of a tile are as wide as.
template <class Shape>
__device__ inline int tile_width(int count) {
  if constexpr (Shape::kWide) return Shape::kMaxTokens;
  return count <= 8 ? 8 : count <= 16 ? 16 : count <= 32 ? 32 : 64;
}

/// Column chunks of a tile of `width` tokens that share a slot of the token ring: a power of two.
template <class Shape>
__device__ constexpr int chunks_of_slot(int width) {
  return Shape::kMaxTokens / width;
}

/// The shared memory of a CTA.
template <class Shape>
struct ExpertMemory {
  alignas(1024) uint8_t tokens[Shape::kTokenSlots][Shape::kTokenSlotBytes];
  alignas(128) uint8_t weights[Shape::kWeightSlots][kWeightSlotBytes];
  alignas(16) uint8_t stage[Shape::kMaxTokens * Shape::kStagePitch];
  int32_t target[kItemSlots][Shape::kMaxTokens];
  float weight[kItemSlots][Shape::kMaxTokens];
  int32_t source[Shape::kMaxTokens];  ///< row of the operand, for the converters alone
  WorkItem items[kItemSlots];
  uint64_t item_full[kItemSlots], item_empty[kItemSlots];
  uint64_t weights_full[Shape::kWeightSlots], weights_empty[Shape::kWeightSlots];
  uint64_t tokens_full[Shape::kTokenSlots], tokens_empty[Shape::kTokenSlots];

  /// One thread, before the CTA's first barrier.
  __device__ void init_barriers() {
    for (int i = 0; i < kItemSlots; ++i) {
      barrier_init(&item_full[i], 1);
      barrier_init(&item_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < Shape::kWeightSlots; ++i) {
      barrier_init(&weights_full[i], 1);
      barrier_init(&weights_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < Shape::kTokenSlots; ++i) {
      barrier_init(&tokens_full[i], kConverterWarps);
      barrier_init(&tokens_empty[i], kConsumerWarps);
    }
    barrier_init_fence();
  }
};

}  // namespace di::ops::cuda
