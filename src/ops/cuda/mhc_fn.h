// The projection of a hyper-connection site as the site kernel reads it: every fp32 number in three
// bf16 parts, the least first, whose products with bf16 streams are exact in the tensor cores.
//
// Units of 32 channels follow each other; a unit holds its streams, a stream three times eight
// outputs, those the three parts, and a part 16 bytes for each lane: of output lane / 4, the two
// channels from 2 · (lane mod 4) on of each eight, which are the lane's B operands. So a warp reads
// whole lines, and a unit in one stretch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

inline constexpr int kUnit = 32;      ///< channels of a warp: a Q8 group, and the length of a chain
inline constexpr int kGroups = 16;    ///< a CTA takes one such share of the units
inline constexpr int kMaxUnits = 10;  ///< of a group

/// Whether the site kernel takes streams of `hidden` channels; a matter of the model's shape.
constexpr bool has_site_kernel(int64_t hidden) {
  constexpr int64_t kShare = kUnit * kGroups;
  return hidden % kShare == 0 && hidden / kShare >= 2 && hidden / kShare <= kMaxUnits;
}

/// Bytes of the packed form of a matrix [rows, cols]; 0 when it is no projection of a site that has
/// a kernel, and stays as it is.
constexpr int64_t packed_fn_bytes(int64_t rows, int64_t cols) {
  return rows == 24 && cols % 4 == 0 && has_site_kernel(cols / 4) ? rows * cols * 6 : 0;
}

/// Splits `raw` [24, cols], on the device, into `packed`. Enqueues on `stream`.
void pack_fn(const float* raw, int64_t cols, std::byte* packed, cudaStream_t stream);

}  // namespace di::ops::cuda
