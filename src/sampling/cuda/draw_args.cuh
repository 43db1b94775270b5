// What the kernels of draw.h, verify.h and drafts.h are given.
#pragma once

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

  // Which rows there are: those of draws or drafts,
  const DrawRow* rows = nullptr;
  int index = 0;                    ///< drafts before these
  const int32_t* drafts = nullptr;  ///< [index, drafted]: they
  int drafted = 0;
  // those of blocks,
  const VerifyBlock* blocks = nullptr;
  int block_rows = 0;  ///< the most that a block may have
  // or those to score.
  const int32_t* tokens = nullptr;
  const int32_t* tops = nullptr;

  bool counts = false;    ///< a draw counts its token, and writes it to its place
  bool is_alone = false;  ///< the kernel for rows that are not plainly greedy has none before it
  Results results = {};
};

/// A row of logits to draw from.
struct RowOrder {
  int row = 0;        ///< of the logits and the results
  int32_t slot = -1;  ///< negative: there is none
  int64_t position = 0;
  int32_t* place = nullptr;
  Ahead ahead = {};
};

/// The row of the cluster `index`.
__device__ inline RowOrder order_of(const Args& args, int index) {
  if (args.blocks == nullptr) {
    const DrawRow draw = args.rows[index];
    return {
        .row = index,
        .slot = draw.slot,
        .position = draw.position + args.index,
        .place = draw.place,
        .ahead = {args.drafts + index, args.index, args.drafted}};
  }
  const VerifyBlock block = args.blocks[index / args.block_rows];
  const int i = index % args.block_rows;
  return {
      .row = block.first_row + i,
      .slot = i > block.num_drafts ? -1 : block.slot,
      .position = block.position + i,
      .place = nullptr,
      .ahead = {block.drafts, i, 1}};
}

/// What all calls have in common.
Args args_of(const View<const float, 2>& logits, const Drawn& drawn);

/// Enqueues the draws of `rows` clusters' rows: plainly greedy ones by the one kernel, the others
/// by a second one that runs beside it.
void enqueue_draws(cudaStream_t stream, const Args& args, int64_t rows);

/// Only those that are not plainly greedy.
void enqueue_other_draws(cudaStream_t stream, const Args& args, int64_t rows);

}  // namespace di::sampling::cuda
