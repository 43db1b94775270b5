#include "ops/cuda/memory.h"

#include <string>

#include "base/error.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/waits.h"

namespace di::ops::cuda {
namespace {

bool is_pageable(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

void copy_async(void* to, const void* from, int64_t bytes, Stream stream) {
  if (watches_copies() && (is_pageable(from) || is_pageable(to))) note_wait();
  check(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
      "cudaMemcpyAsync"
  );
}

void wait_for(Stream stream) {
  note_wait();
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

[[noreturn]] void refuse(int64_t bytes, const char* what, cudaError_t code) {
  cudaGetLastError();  // the refusal must not be found again by the next launch
  throw Error(
      ErrorCode::kOutOfMemory,
      "CUDA refuses " + std::to_string(bytes) + " bytes for " + what + ": " +
          cudaGetErrorString(code)
  );
}

std::shared_ptr<CUstream_st> new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return {stream, [](cudaStream_t s) { cudaStreamDestroy(s); }};
}

class DeviceMemory final : public Memory {
 public:
  bool is_host() const override { return false; }

  std::shared_ptr<std::byte> allocate(int64_t bytes, const char* what) const override {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    note_wait();
    const cudaError_t code = cudaMalloc(&data, static_cast<std::size_t>(bytes));
    if (code != cudaSuccess) refuse(bytes, what, code);
    return {static_cast<std::byte*>(data), [](std::byte* p) {
              note_wait();
              cudaFree(p);
            }};
  }

  void copy(void* to, const void* from, int64_t bytes, Stream stream) const override {
    copy_async(to, from, bytes, stream);
  }

  void wait(Stream stream) const override { wait_for(stream); }

  std::shared_ptr<CUstream_st> make_stream() const override { return new_stream(); }

  int64_t available() const override {
    std::size_t available = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    return static_cast<int64_t>(available);
  }
};

class PinnedMemory final : public Memory {
 public:
  bool is_host() const override { return true; }

  std::shared_ptr<std::byte> allocate(int64_t bytes, const char* what) const override {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    note_wait();
    const cudaError_t code =
        cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
    if (code != cudaSuccess) refuse(bytes, what, code);
    return {static_cast<std::byte*>(data), [](std::byte* p) {
              note_wait();
              cudaFreeHost(p);
            }};
  }

  void copy(void* to, const void* from, int64_t bytes, Stream stream) const override {
    copy_async(to, from, bytes, stream);
  }

  void wait(Stream stream) const override { wait_for(stream); }

  std::shared_ptr<CUstream_st> make_stream() const override { return new_stream(); }
  int64_t available() const override { return host_memory().available(); }
};

}  // namespace

const Memory& device_memory() {
  static const DeviceMemory memory;
  return memory;
}

const Memory& pinned_memory() {
  static const PinnedMemory memory;
  return memory;
}

}  // namespace di::ops::cuda
