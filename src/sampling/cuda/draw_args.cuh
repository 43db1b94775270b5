// What the kernels of draw.h, verify.h and drafts.h are given.
#pragma once

#include "sampling/cuda/drafts.h"
#include "sampling/cuda/row.cuh"
#include "sampling/cuda/verify.h"

namespace di::sampling::cuda {

/// Drawn as pointers; those of drafts have nothing but tokens.
struct Results {
  int32_t* tokens;
  float* logprobs;  ///< nullptr: the rows are drafts
  uint8_t* finite;
  int32_t* top_tokens;  ///< [rows, most]
  float* top_logprobs;
  int most;

  /// Token −1: the row is not finite. Such a draft stays what it was.
  __device__ void write(int row, int32_t token, float logprob) const {
    if (logprobs == nullptr) {
      if (token >= 0) tokens[row] = token;
      return;
    }
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
  const float* logits = nullptr;
  int vocab_size = 0;
  int part_size = 0;
  const SlotParams* slots = nullptr;  ///< of everything but scores

  // Which rows there are: those of draws,
  const DrawRow* rows = nullptr;
  // those of drafts,
  const DraftRow* draft_rows = nullptr;
  int index = 0;                    ///< drafts before these
  const int32_t* drafts = nullptr;  ///< [index, drafted]: they
  int drafted = 0;
  // those of blocks,
  const VerifyBlock* blocks = nullptr;
  int block_rows = 0;            ///< the most that a block may have
  int32_t* num_drawn = nullptr;  ///< [blocks]
  // or those to score.
  const int32_t* tokens = nullptr;
  const int32_t* tops = nullptr;

  bool counts = false;  ///< a draw counts its token, and writes it to its place
  Results results = {};
};

/// A row of logits to draw from.
struct RowOrder {
  int row = 0;        ///< of the logits and the results
  int32_t slot = -1;  ///< negative: there is none
  bool is_plain = false;
  int64_t position = 0;
  int32_t* place = nullptr;
  Ahead ahead = {};
  DraftRecord* record = nullptr;  ///< of the draft that the row judges
};

/// Drafts of a block that are looked at.
__device__ inline int drafts_of(const Args& args, const VerifyBlock& block) {
  return min(block.num_drafts, args.block_rows - 1);
}

/// Whether block verification judges drafts of the block.
__device__ inline bool is_judged(const VerifyBlock& block) {
  return block.records != nullptr && block.num_drafts > 0;
}

/// The row of the cluster `index`. Behind the last draft of a block that is judged there is none:
/// it is drawn when all others are known (verify.cu).
template <bool kOfBlocks>
__device__ inline RowOrder order_of(const Args& args, int index) {
  if constexpr (!kOfBlocks) {
    const DrawRow draw = args.rows[index];
    return {
        .row = index,
        .slot = draw.slot,
        .is_plain = draw.is_plain,
        .position = draw.position,
        .place = draw.place};
  } else {
    const VerifyBlock block = args.blocks[index / args.block_rows];
    const int i = index % args.block_rows;
    const int drafts = drafts_of(args, block);
    const bool judges = is_judged(block);
    return {
        .row = block.first_row + i,
        .slot = i > drafts || (judges && i == drafts) ? -1 : block.slot,
        .is_plain = block.is_plain,
        .position = block.position + i,
        .place = nullptr,
        .ahead = {block.drafts, i, 1},
        .record = judges ? block.records + i : nullptr};
  }
}

/// What all calls have in common.
Args args_of(const View<const float, 2>& logits, const Drawn& drawn);

/// Enqueues the draws of `rows` clusters' rows of blocks; drafts that are to be judged are.
void enqueue_block_draws(cudaStream_t stream, const Args& args, int64_t rows);

}  // namespace di::sampling::cuda
