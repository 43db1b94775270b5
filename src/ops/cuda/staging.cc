#include "ops/cuda/staging.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"

namespace di::ops::cuda {
namespace {

/// Stagers that nobody uses.
struct IdleStagers {
  std::mutex mutex;
  std::vector<std::unique_ptr<Stager>> stagers;

  void wait() const {
    for (const auto& stager : stagers)
      stager->wait();
  }
};

/// Never destroyed: at the program's end CUDA may be gone before.
IdleStagers& idle_stagers() {
  static auto& idle = *new IdleStagers;
  return idle;
}

std::atomic<bool> is_loading{false};

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

}  // namespace

Stager::Stager() : copies_(make_stream()), stream_(make_stream()), copied_(make_event()) {
  for (Buffer& buffer : pinned_)
    buffer.free = make_event();
  for (Buffer& buffer : staged_)
    buffer.free = make_event();
}

Stager::~Stager() {
  for (const Buffer& buffer : pinned_)
    cudaEventDestroy(buffer.free);
  for (const Buffer& buffer : staged_)
    cudaEventDestroy(buffer.free);
  cudaEventDestroy(copied_);
  cudaStreamDestroy(copies_);
  cudaStreamDestroy(stream_);
}

const uint8_t* Stager::stage(
    const void* data, int64_t data_bytes, const void* more, int64_t more_bytes
) {
  Buffer& buffer = staged_[next_staged_ ^= 1];
  check(cudaEventSynchronize(buffer.free), "cudaEventSynchronize");
  const int64_t more_at = align_up(data_bytes, 16);
  if (more_at + more_bytes > buffer.bytes) {
    // Codes and their scales.
    buffer.bytes = std::max(more_at + more_bytes, kStagingBytes + kStagingBytes / 8);
    buffer.memory = device_memory().allocate(buffer.bytes, "staging of weights");
  }
  send(buffer.memory.get(), data, data_bytes);
  send(buffer.memory.get() + more_at, more, more_bytes);
  check(cudaEventRecord(copied_, copies_), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, copied_), "cudaStreamWaitEvent");
  return reinterpret_cast<const uint8_t*>(buffer.memory.get());
}

void Stager::release() {
  check(cudaEventRecord(staged_[next_staged_].free, stream_), "cudaEventRecord");
}

void Stager::send(std::byte* to, const void* from, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kPinnedBytes) {
    const int64_t count = std::min(kPinnedBytes, bytes - begin);
    Buffer& buffer = pinned_[next_pinned_++ % pinned_.size()];
    check(cudaEventSynchronize(buffer.free), "cudaEventSynchronize");
    if (buffer.memory == nullptr)
      buffer.memory = pinned_memory().allocate(kPinnedBytes, "staging of weights");
    const std::byte* source = static_cast<const std::byte*>(from) + begin;
    std::memcpy(buffer.memory.get(), source, static_cast<std::size_t>(count));
    device_memory().copy(to + begin, buffer.memory.get(), count, copies_);
    check(cudaEventRecord(buffer.free, copies_), "cudaEventRecord");
  }
}

void Stager::finish() const {
  if (!is_loading) wait();
}

void Stager::wait() const {
  check(cudaStreamSynchronize(copies_), "loading weights");
  check(cudaStreamSynchronize(stream_), "loading weights");
}

StagerLease::StagerLease() {
  IdleStagers& idle = idle_stagers();
  const std::lock_guard lock(idle.mutex);
  if (idle.stagers.empty()) {
    stager_ = std::make_unique<Stager>();
  } else {
    stager_ = std::move(idle.stagers.back());
    idle.stagers.pop_back();
  }
}

StagerLease::~StagerLease() {
  IdleStagers& idle = idle_stagers();
  const std::lock_guard lock(idle.mutex);
  idle.stagers.push_back(std::move(stager_));
}

void load(const std::byte* from, int64_t bytes, std::byte* to) {
  const StagerLease stager;
  stager->send(to, from, bytes);
  stager->finish();
}

void begin_loading() {
  is_loading = true;
}

std::shared_ptr<const std::byte> pin(std::span<const std::byte> bytes) {
  constexpr std::uintptr_t kPage = 4096;
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = address / kPage * kPage;
  const std::uintptr_t end = (address + bytes.size() + kPage - 1) / kPage * kPage;
  void* pages = reinterpret_cast<void*>(begin);
  const cudaError_t code =
      cudaHostRegister(pages, end - begin, cudaHostRegisterReadOnly | cudaHostRegisterMapped);
  if (code != cudaSuccess) {
    cudaGetLastError();
    throw Error(
        ErrorCode::kOutOfMemory,
        "CUDA cannot pin " + std::to_string(end - begin) +
            " bytes of the checkpoint: " + cudaGetErrorString(code)
    );
  }
  const std::shared_ptr<void> pinned(pages, [](void* p) { cudaHostUnregister(p); });
  void* on_device = nullptr;
  check(cudaHostGetDevicePointer(&on_device, pages, 0), "cudaHostGetDevicePointer");
  return {pinned, static_cast<const std::byte*>(on_device) + (address - begin)};
}

void wait_for_loads() {
  IdleStagers& idle = idle_stagers();
  const std::lock_guard lock(idle.mutex);
  idle.wait();
}

void end_loading() {
  is_loading = false;
  IdleStagers& idle = idle_stagers();
  const std::lock_guard lock(idle.mutex);
  idle.wait();
  idle.stagers.clear();
}

}  // namespace di::ops::cuda
