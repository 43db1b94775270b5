#include "ops/cuda/staging.h"

#include <algorithm>
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
};

/// Never destroyed: at the program's end CUDA may be gone before.
IdleStagers& idle_stagers() {
  static auto& idle = *new IdleStagers;
  return idle;
}

}  // namespace

Stager::Stager() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  for (Slot& slot : slots_)
    check(cudaEventCreateWithFlags(&slot.free, cudaEventDisableTiming), "cudaEventCreate");
}

Stager::~Stager() {
  for (const Slot& slot : slots_)
    cudaEventDestroy(slot.free);
  cudaStreamDestroy(stream_);
}

void Stager::Slot::reserve(int64_t on_host, int64_t on_device) {
  if (on_host > host_bytes) {
    host_bytes = std::max(on_host, kStagingBytes + kStagingBytes / 8);  // codes and their scales
    host = pinned_memory().allocate(host_bytes, "staging of weights");
  }
  if (on_device > device_bytes) {
    device_bytes = std::max(on_device, kStagingBytes + kStagingBytes / 8);
    device = device_memory().allocate(device_bytes, "staging of weights");
  }
}

Stager::Slot& Stager::next_slot(int64_t on_host, int64_t on_device) {
  Slot& slot = slots_[turn_ ^= 1];
  check(cudaEventSynchronize(slot.free), "cudaEventSynchronize");
  slot.reserve(on_host, on_device);
  return slot;
}

const uint8_t* Stager::stage(
    const void* data, int64_t data_bytes, const void* more, int64_t more_bytes
) {
  const int64_t bytes = align_up(data_bytes, 16) + more_bytes;
  const Slot& slot = next_slot(bytes, bytes);
  std::memcpy(slot.host.get(), data, static_cast<std::size_t>(data_bytes));
  if (more_bytes != 0) {
    std::memcpy(
        slot.host.get() + align_up(data_bytes, 16), more, static_cast<std::size_t>(more_bytes)
    );
  }
  device_memory().copy(slot.device.get(), slot.host.get(), bytes, stream_);
  return reinterpret_cast<const uint8_t*>(slot.device.get());
}

void Stager::send(std::byte* to, const std::byte* from, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kStagingBytes) {
    const int64_t count = std::min(kStagingBytes, bytes - begin);
    const Slot& slot = next_slot(count, 0);
    std::memcpy(slot.host.get(), from + begin, static_cast<std::size_t>(count));
    device_memory().copy(to + begin, slot.host.get(), count, stream_);
    release();
  }
}

void Stager::release() {
  check(cudaEventRecord(slots_[turn_].free, stream_), "cudaEventRecord");
}

void Stager::wait() const {
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
  stager->wait();
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

void end_loading() {
  IdleStagers& idle = idle_stagers();
  const std::lock_guard lock(idle.mutex);
  idle.stagers.clear();
}

}  // namespace di::ops::cuda
