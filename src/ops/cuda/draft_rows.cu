// A thread for each sequence: a handful of numbers.
#include "base/check.h"
#include "ops/cuda/draft_rows.h"
#include "ops/cuda/launch.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;

struct AnchorArgs {
  const DraftPlace* places;
  const int32_t* num_drawn;
  SequenceRows* sequences;
  int64_t* positions;
  int32_t* anchors;
  std::byte* anchor_positions;
  int64_t position_stride;
  int64_t vocab_size;
  int count;
};

__global__ void __launch_bounds__(kThreads) anchor_kernel(AnchorArgs op) {
  const int s = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (s >= op.count) return;
  const DraftPlace& place = op.places[s];
  if (place.tokens == nullptr) {
    op.anchors[s] = 0;
    return;
  }
  const int64_t start = place.known - 1 + op.num_drawn[place.drawn];
  SequenceRows& sequence = op.sequences[s];
  sequence.start = start;
  for (int64_t i = 0; i < sequence.num_rows; ++i)
    op.positions[sequence.first_row + i] = start + i;
  const int32_t anchor = place.tokens[start];
  const bool is_token = anchor >= 0 && anchor < op.vocab_size;
  if (!is_token) place.tokens[start] = 0;
  op.anchors[s] = is_token ? anchor : 0;
  *reinterpret_cast<int64_t*>(op.anchor_positions + s * op.position_stride) = start;
}

struct StoreArgs {
  const DraftPlace* places;
  const int32_t* num_drawn;
  const int32_t* drafts;
  int count;
  int length;
};

__global__ void __launch_bounds__(kThreads) store_kernel(StoreArgs op) {
  const int s = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (s >= op.count) return;
  const DraftPlace& place = op.places[s];
  if (place.tokens == nullptr) return;
  int32_t* behind = place.tokens + place.known + op.num_drawn[place.drawn];
  for (int i = 0; i < op.length; ++i)
    behind[i] = op.drafts[i * op.count + s];
}

unsigned blocks_of(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void anchor_rows(Exec& exec, const AnchorRows& op) {
  const int64_t count = op.places.dim(0);
  if (count == 0) return;
  DI_CHECK(std::ssize(op.rows.sequences) == count, "a place for each sequence");
  const AnchorArgs args{
      .places = op.places.data,
      .num_drawn = op.num_drawn.data,
      .sequences = const_cast<SequenceRows*>(op.rows.sequences.data()),
      .positions = const_cast<int64_t*>(op.rows.positions.data),
      .anchors = op.anchors.data,
      .anchor_positions = reinterpret_cast<std::byte*>(op.anchor_positions),
      .position_stride = op.position_stride,
      .vocab_size = op.vocab_size,
      .count = static_cast<int>(count)};
  anchor_kernel<<<blocks_of(count), kThreads, 0, exec.stream>>>(args);
  check_launch("anchor_rows");
}

void store_drafts(Exec& exec, const StoreDrafts& op) {
  const int64_t count = op.places.dim(0);
  if (count == 0) return;
  const StoreArgs args{
      .places = op.places.data,
      .num_drawn = op.num_drawn.data,
      .drafts = op.drafts.data,
      .count = static_cast<int>(count),
      .length = static_cast<int>(op.drafts.dim(0))};
  store_kernel<<<blocks_of(count), kThreads, 0, exec.stream>>>(args);
  check_launch("store_drafts");
}

}  // namespace di::ops::cuda
