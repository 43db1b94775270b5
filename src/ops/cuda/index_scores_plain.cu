// The scores of shapes that the tensor-core kernel does not take: small models; and of all shapes
// in canonical arithmetic. Literally the reference, a thread a place.
#include <algorithm>

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float plain_score(const IndexCall& call, int64_t row, const int32_t* table, int entry) {
  const auto per_block = static_cast<int>(call.keys.entries_per_block);
  const auto* section = reinterpret_cast<const uint8_t*>(
      call.keys.base + table[entry / per_block] * call.keys.block_stride
  );
  const int groups = call.dim / 32;
  const uint8_t* codes = section + entry % per_block * call.keys.record_bytes;
  const uint8_t* scales = section + per_block * call.keys.record_bytes + entry % per_block * groups;
  double sum = 0;
  for (int head = 0; head < call.heads; ++head) {
    const int64_t at = row * call.heads + head;
    double dot = 0;
    for (int d = 0; d < call.dim; ++d) {
      const auto value = [d](const uint8_t* c, const uint8_t* s) {
        return double{decode_e2m1(c[d / 2] >> (d % 2 * 4) & 15)} * decode_e8m0(s[d / 32]);
      };
      dot += value(call.q_codes + at * (call.dim / 2), call.q_scales + at * groups) *
             value(codes, scales);
    }
    const float rounded = round_bf16(static_cast<float>(dot));
    const float positive = rounded < 0 ? 0 : rounded;
    sum += round_bf16(positive * to_float(call.head_weights[at]));
  }
  return static_cast<float>(sum);
}

__global__ void score_plainly(IndexCall call) {
  const int64_t row = call.scores.first_row + blockIdx.y;
  const int visible = call.visible(row);
  const int32_t* table = call.sequences[call.sequence_of[row]].block_table;
  const int32_t* candidates =
      call.candidates == nullptr ? nullptr : call.candidates + row * call.width;
  constexpr int kTile = static_cast<int>(kScoreTile);
  const int end = (call.places(visible) + kTile - 1) / kTile * kTile;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int place = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); place < end;
       place += step) {
    int entry = place;
    if (candidates != nullptr) {
      const int slot = place / call.block_size;
      const int block = slot < call.width ? candidates[slot] : -1;
      entry = block < 0 ? visible : block * call.block_size + place % call.block_size;
    }
    const uint32_t key = entry < visible ? order_key(plain_score(call, row, table, entry)) : 0;
    const int64_t at = int64_t{blockIdx.y} * call.scores.stride + place;
    call.scores.keys[at] = static_cast<uint16_t>(key);
    uint32_t best = key;
    for (int distance = 1; distance < kVectorKeys; distance *= 2)
      best = max(best, __shfl_xor_sync(0xffffffffu, best, distance));
    if (place % kVectorKeys == 0) call.scores.bests[at / kVectorKeys] = static_cast<uint16_t>(best);
  }
}

}  // namespace

void score_entries_plainly(Exec& exec, const IndexSelect& op, const IndexScores& scores) {
  const int64_t places = max_places(op);
  if (scores.rows == 0 || places == 0) return;
  const IndexCall call = index_call(op, scores);
  need_multiple("the width of index keys", call.dim, 32);
  const dim3 grid(
      std::min(blocks_of(places, kThreads), 1024u), static_cast<unsigned int>(call.scores.rows)
  );
  score_plainly<<<grid, kThreads, 0, exec.stream>>>(call);
  check_launch("index_select: plain scores");
}

}  // namespace di::ops::cuda
