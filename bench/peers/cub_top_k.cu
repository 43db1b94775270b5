// Times CUB's top-k on the shapes of `deepinfer bench ops --backend cuda --only index`: the places
// of the best 512 of each row of 16-bit order keys. Prints the lines that bench/peers/cuda_peers.py
// does.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I CCCL bench/peers/cub_top_k.cu -o cub_top_k && ./cub_top_k
//
// CCCL is the include folder of PyPI's nvidia-cuda-cccl 13.3.5 (Apache-2.0 with LLVM exceptions);
// the toolkit's own is older and has no batched top-k. The batched one takes rows of 16,384 at most
// (with places of 16 bits), as a block holds its row; longer rows go through DeviceTopK, a call for
// each. Neither promises the same choice among equals, nor an order, which ours does.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cub/device/device_batched_topk.cuh>
#include <cub/device/device_topk.cuh>
#include <cuda/iterator>

namespace {

constexpr int kBest = 512;

void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  std::printf(
      "{\"name\": \"peer\", \"peer\": \"cub\", \"error\": \"%s\"}\n", cudaGetErrorString(code)
  );
  std::exit(1);
}

template <class T>
T* device_array(int64_t count) {
  void* data = nullptr;
  check(cudaMalloc(&data, static_cast<std::size_t>(count) * sizeof(T)));
  return static_cast<T*>(data);
}

__global__ void fill(uint16_t* keys, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  keys[i] = static_cast<uint16_t>(1 + (x >> 40) % 65535);
}

auto environment(cudaStream_t stream) {
  return cuda::std::execution::env{
      cuda::stream_ref{stream},
      cuda::execution::require(
          cuda::execution::determinism::not_guaranteed,
          cuda::execution::tie_break::unspecified,
          cuda::execution::output_ordering::unsorted
      )};
}

/// Microseconds of one of `calls` calls that `run` enqueues: the median of seven graph replays.
double graph_us(cudaStream_t stream, int calls, const std::function<void()>& run) {
  run();
  check(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t playable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  run();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&playable, graph, 0));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(playable, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  return times[3] * 1e3 / calls;
}

void print(const char* peer, int64_t rows, int64_t length, double us) {
  const double bytes = 2.0 * static_cast<double>(rows * length);
  std::printf(
      "{\"name\": \"peer\", \"peer\": \"%s\", \"shape\": \"%d of %lld\", \"rows\": %lld, \"us\": "
      "%.3f, "
      "\"tbps\": %.4f}\n",
      peer,
      kBest,
      static_cast<long long>(length),
      static_cast<long long>(rows),
      us,
      bytes / us / 1e6
  );
}

/// As many copies of the keys as leave the L2 cache.
int copies_of(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>((int64_t{150} << 20) / bytes, 1, 8));
}

void batched(cudaStream_t stream, int64_t rows) {
  constexpr int64_t kLength = 16384;
  const int copies = copies_of(rows * kLength * 2);
  uint16_t* keys = device_array<uint16_t>(copies * rows * kLength);
  fill<<<static_cast<unsigned>(copies * rows * kLength / 256), 256, 0, stream>>>(
      keys, copies * rows * kLength
  );
  auto* best = device_array<uint16_t>(rows * kBest);
  auto* places = device_array<uint16_t>(rows * kBest);
  std::size_t bytes = 0;
  const auto call = [&](void* storage, const uint16_t* from) {
    check(cub::DeviceBatchedTopK::MaxPairs(
        storage,
        bytes,
        cuda::make_strided_iterator(cuda::counting_iterator{from}, kLength),
        cuda::make_strided_iterator(cuda::counting_iterator{best}, int64_t{kBest}),
        cuda::constant_iterator{cuda::counting_iterator<uint16_t>{0}},
        cuda::make_strided_iterator(cuda::counting_iterator{places}, int64_t{kBest}),
        cuda::args::constant<kLength>{},
        cuda::args::constant<int64_t{kBest}>{},
        rows,
        environment(stream)
    ));
  };
  call(nullptr, keys);
  auto* storage = device_array<std::byte>(static_cast<int64_t>(bytes) + 1);
  const double us = graph_us(stream, copies, [&] {
    for (int i = 0; i < copies; ++i)
      call(storage, keys + i * rows * kLength);
  });
  print("cub batched top-k", rows, kLength, us);
}

void one_by_one(cudaStream_t stream, int64_t rows, int64_t length) {
  const int copies = rows > 1 ? 1 : copies_of(length * 2);
  uint16_t* keys = device_array<uint16_t>(copies * rows * length);
  fill<<<static_cast<unsigned>(copies * rows * length / 256), 256, 0, stream>>>(
      keys, copies * rows * length
  );
  auto* best = device_array<uint16_t>(rows * kBest);
  auto* places = device_array<int32_t>(rows * kBest);
  std::size_t bytes = 0;
  const auto call = [&](void* storage, const uint16_t* from, int64_t row) {
    check(cub::DeviceTopK::MaxPairs(
        storage,
        bytes,
        from,
        best + row * kBest,
        cuda::counting_iterator<int32_t>{0},
        places + row * kBest,
        static_cast<int32_t>(length),
        int32_t{kBest},
        environment(stream)
    ));
  };
  call(nullptr, keys, 0);
  auto* storage = device_array<std::byte>(static_cast<int64_t>(bytes) + 1);
  const double us = graph_us(stream, copies, [&] {
    for (int64_t i = 0; i < copies * rows; ++i)
      call(storage, keys + i * length, i % rows);
  });
  print("cub top-k, a call for each row", rows, length, us);
}

}  // namespace

int main() {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const int64_t rows : {1, 64, 2048})
    batched(stream, rows);
  one_by_one(stream, 1, 131072);
  one_by_one(stream, 1, 1048576);
  one_by_one(stream, 64, 65536);
}
