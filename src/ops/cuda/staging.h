// The ways of weights to the device. Most are copied: pinned buffers that threads fill in turn
// while the bus empties them. Copies from pages of a mapped file would go through one buffer of the
// driver's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

/// Bytes of a buffer, unless a caller needs more at once: a loader's piece. With a quarter of it
/// the rate falls by up to a sixth, to more calls.
inline constexpr int64_t kStagingBytes = int64_t{4} << 20;

/// Two pairs of buffers, on the machine and on the device, used in turn, and their queue.
///
/// Thread: one at a time.
class Stager {
 public:
  Stager();
  ~Stager();
  Stager(const Stager&) = delete;

  cudaStream_t stream() const { return stream_; }

  /// Copies two host ranges to a buffer on the device, one behind the other (the second aligned to
  /// 16); returns the device address. Valid until the call after the next.
  const uint8_t* stage(const void* data, int64_t data_bytes, const void* more, int64_t more_bytes);

  /// Copies a host range to `to` on the device.
  void send(std::byte* to, const std::byte* from, int64_t bytes);

  /// Marks the buffers of the last stage() as in use until what is enqueued now is done.
  void release();

  /// Returns when all that was enqueued is done.
  void wait() const;

 private:
  struct Slot {
    std::shared_ptr<std::byte> host, device;
    int64_t host_bytes = 0;
    int64_t device_bytes = 0;
    cudaEvent_t free = nullptr;

    void reserve(int64_t on_host, int64_t on_device);
  };
  Slot& next_slot(int64_t on_host, int64_t on_device);

  cudaStream_t stream_ = nullptr;
  Slot slots_[2];
  int turn_ = 0;
};

/// A stager that nobody else uses until this ends; later ones get it again.
class StagerLease {
 public:
  StagerLease();
  ~StagerLease();
  StagerLease(const StagerLease&) = delete;

  Stager* operator->() const { return stager_.get(); }

 private:
  std::unique_ptr<Stager> stager_;
};

/// OpTable::load: bytes of the machine's memory to the device's. Returns when they are in place.
/// Thread: any.
void load(const std::byte* from, int64_t bytes, std::byte* to);

/// OpTable::pin: pins the pages that hold `bytes`, read only. No page may be pinned twice at once.
std::shared_ptr<const std::byte> pin(std::span<const std::byte> bytes);

/// OpTable::end_loading: frees the buffers.
void end_loading();

}  // namespace di::ops::cuda
