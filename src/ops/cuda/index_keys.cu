// Four lanes share a group of 32 values, eight each: 16 bytes in, 4 bytes of codes out.
#include "ops/cuda/index_keys.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kGroup = 32;
constexpr int kLanes = kGroup / kVector;  // that share a group

/// Where a group's codes and scale go.
struct GroupPlace {
  uint8_t* codes;
  uint8_t* scale;
};

/// Quantises the group of these four lanes; all lanes of the warp call it. A division by a power of
/// two is a product with its inverse, subnormal or not.
__device__ void quantize_group(const bf16* x, const GroupPlace& place, bool active) {
  float value[kVector] = {};
  if (active) unpack(load_vector(x), value);
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    amax = fmaxf(amax, fabsf(value[i]));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 2));
  if (!active) return;
  const uint8_t scale = q4m_scale(amax);
  const float inverse = decode_e8m0(scale == 255 ? 255 : static_cast<uint8_t>(254 - scale));
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    codes |= uint32_t{encode_e2m1(value[i] * inverse)} << (4 * i);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  reinterpret_cast<uint32_t*>(place.codes)[lane] = codes;
  if (lane == 0) *place.scale = scale;
}

/// The group of these lanes, counted over the grid.
__device__ int64_t own_group() {
  return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
}

__global__ void quantize_rows(uint8_t* codes, uint8_t* scales, const bf16* x, int64_t groups) {
  join_kernel_chain();
  const int64_t group = own_group();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const GroupPlace place{codes + group * (kGroup / 2), scales + group};
  quantize_group(x + group * kGroup + lane * kVector, place, group < groups);
}

__global__ void store_keys(
    PagedView cache,
    const bf16* k,
    int groups_of_key,
    const NewEntry* entries,
    int64_t count,
    const SequenceRows* sequences
) {
  join_kernel_chain();
  const int64_t group = own_group();
  const int64_t i = group / groups_of_key;
  const bool active = i < count && entries[i].row >= 0;
  GroupPlace place{};
  if (active) {
    const NewEntry entry = entries[i];
    const int32_t block = sequences[entry.sequence].block_table[entry.j / cache.entries_per_block];
    auto* section = reinterpret_cast<uint8_t*>(cache.base + block * cache.block_stride);
    const int64_t at = entry.j % cache.entries_per_block;
    const int64_t in_key = group % groups_of_key;
    place = {
        section + at * cache.record_bytes + in_key * (kGroup / 2),
        section + cache.entries_per_block * cache.record_bytes + at * groups_of_key + in_key};
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  quantize_group(k + group * kGroup + lane * kVector, place, active);
}

}  // namespace

void quantize_mxfp4(Exec& exec, const QuantizeMxFp4& op) {
  need_multiple("the width of MXFP4 rows", op.x.dim(1), kGroup);
  const int64_t groups = op.x.size() / kGroup;
  if (groups == 0) return;
  launch_overlapped(
      "quantize_mxfp4",
      quantize_rows,
      blocks_of(groups * kLanes, kThreads),
      kThreads,
      0,
      exec.stream,
      op.codes.data,
      op.scales.data,
      op.x.data,
      groups
  );
}

void index_key_store(Exec& exec, const IndexKeyStore& op) {
  need_multiple("the width of index keys", op.k.dim(1), kGroup);
  const auto entries = std::ssize(op.entries);
  if (entries == 0) return;
  const int64_t groups = op.k.dim(1) / kGroup;
  launch_overlapped(
      "index_key_store",
      store_keys,
      blocks_of(entries * groups * kLanes, kThreads),
      kThreads,
      0,
      exec.stream,
      op.cache,
      op.k.data,
      static_cast<int>(groups),
      op.entries.data(),
      entries,
      op.rows.sequences.data()
  );
}

}  // namespace di::ops::cuda
