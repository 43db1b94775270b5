// A thread takes eight numbers and writes their three parts; a load is the only time it is run.
#include "ops/cuda/launch.h"
#include "ops/cuda/mhc_fn.h"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kStreams = 4;

/// A thread for the three parts of eight numbers.
__global__ void __launch_bounds__(kThreads)
    split_fn(const float* raw, int64_t cols, uint4* packed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= 24 * cols / kVector) return;
  const int64_t lane = i % 32;
  const int64_t eight = i / 32 % 3;
  const int64_t stream = i / 96 % kStreams;
  const int64_t unit = i / 96 / kStreams;
  const float* from = raw + (eight * 8 + lane / 4) * cols + stream * (cols / kStreams) +
                      unit * kUnit + lane % 4 * 2;
  float x[kVector];
  for (int k = 0; k < kVector; ++k)
    x[k] = from[k / 2 * 8 + k % 2];
  uint4 parts[3];
  for (int part = 2; part >= 0; --part) {
    parts[part] = pack(x);
    float taken[kVector];
    unpack(parts[part], taken);
    for (int k = 0; k < kVector; ++k)
      x[k] -= taken[k];
  }
  for (int part = 0; part < 3; ++part)
    packed[((i / 32) * 3 + part) * 32 + lane] = parts[part];
}

}  // namespace

void pack_fn(const float* raw, int64_t cols, std::byte* packed, cudaStream_t stream) {
  split_fn<<<blocks_of(24 * cols / kVector, kThreads), kThreads, 0, stream>>>(
      raw, cols, reinterpret_cast<uint4*>(packed)
  );
  check_launch("pack_fn");
}

}  // namespace di::ops::cuda
