// A round is three launches around the linear that makes the bias: rows of the embedding, the sum
// with the best token of each stretch of the vocabulary, and the best of the stretches.
#include "ops/cuda/canonical_linear.h"
#include "ops/cuda/draft.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStretches = 32;  // of the vocabulary

/// A token with its logit: the greatest is the best, and of equal logits the lowest token.
using Ranked = unsigned long long;

__device__ inline Ranked ranked(float logit, int64_t token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // one zero
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return Ranked{order} << 32 | ~static_cast<uint32_t>(token);
}

__device__ inline int32_t token_of(Ranked best) {
  return static_cast<int32_t>(~static_cast<uint32_t>(best));
}

__device__ inline Ranked best_of_warp(Ranked best) {
  for (int distance = 16; distance > 0; distance /= 2)
    best = max(best, __shfl_xor_sync(~0u, best, distance));
  return best;
}

/// Block i: the embedding of row i's token before, into `x` and behind the row's features.
__global__ void __launch_bounds__(kThreads) take_previous(MarkovRound op, bf16* x) {
  const int64_t row = blockIdx.x;
  const int64_t rank = op.embed.dims[1];
  const int64_t width = op.features.dims[1];
  const bf16* e = op.embed.data + op.previous.data[row] * rank;
  bf16* feature = op.features.data + (row + 1) * width - rank;
  for (int64_t d = threadIdx.x; d < rank; d += kThreads) {
    x[row * rank + d] = e[d];
    feature[d] = e[d];
  }
}

/// Block (i, row): adds the bias on stretch i.
__global__ void __launch_bounds__(kThreads)
    add_bias(float* logits, const float* bias, int64_t vocab, Ranked* best) {
  __shared__ Ranked of_warp[kThreads / 32];
  const int64_t row = blockIdx.y;
  const int64_t begin = vocab * blockIdx.x / kStretches;
  const int64_t end = vocab * (blockIdx.x + 1) / kStretches;
  Ranked mine = ranked(-INFINITY, 0);
  for (int64_t v = begin + threadIdx.x; v < end; v += kThreads) {
    const float logit = logits[row * vocab + v] + bias[row * vocab + v];
    logits[row * vocab + v] = logit;
    if (!isnan(logit)) mine = max(mine, ranked(logit, v));
  }
  mine = best_of_warp(mine);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (const Ranked other : of_warp)
    mine = max(mine, other);
  best[row * kStretches + blockIdx.x] = mine;
}

static_assert(kStretches == 32, "a warp reads the stretches of a row");

__global__ void best_of_row(const Ranked* best, int32_t* tokens) {
  const Ranked all = best_of_warp(best[blockIdx.x * kStretches + threadIdx.x]);
  if (threadIdx.x == 0) tokens[blockIdx.x] = token_of(all);
}

/// A round whose bias `multiply` makes.
void run_round(Exec& exec, const MarkovRound& op, void (*multiply)(Exec&, const Linear&)) {
  if (op.logits.dim(0) == 0) return;
  const Arena::Scope scope(exec.scratch);
  const int64_t rows = op.logits.dim(0);
  const int64_t vocab = op.logits.dim(1);
  const auto x = exec.scratch.array<bf16>(rows, op.embed.dim(1));
  const auto bias = exec.scratch.array<float>(rows, vocab);
  auto* best = exec.scratch.take<Ranked>(rows * kStretches);
  const auto blocks = static_cast<unsigned>(rows);
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  take_previous<<<blocks, kThreads, 0, stream>>>(op, x.data);
  check_launch("markov_round: previous");
  multiply(exec, {.y = {}, .y_f32 = bias, .x = x, .w = op.head});
  add_bias<<<dim3(kStretches, blocks), kThreads, 0, stream>>>(
      op.logits.data, bias.data, vocab, best
  );
  check_launch("markov_round: bias");
  best_of_row<<<blocks, 32, 0, stream>>>(best, op.best.data);
  check_launch("markov_round: best");
}

}  // namespace

void markov_round(Exec& exec, const MarkovRound& op) {
  run_round(exec, op, linear);
}

void canonical::markov_round(Exec& exec, const MarkovRound& op) {
  run_round(exec, op, canonical::linear);
}

}  // namespace di::ops::cuda
