// The ways of weights to the device. Most are copied: pinned buffers that threads fill in turn
// while the bus empties them. Copies from pages of a mapped file would go through one buffer of the
// driver's own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

/// Bytes of weights that are converted at a time, unless a caller needs more at once: a loader's
/// piece.
inline constexpr int64_t kStagingBytes = int64_t{4} << 20;

/// Bytes of a pinned buffer: so few that the bus still finds them in a cache of the processor.
inline constexpr int64_t kPinnedBytes = int64_t{1} << 20;

/// Pinned buffers on the machine and larger ones on the device, each used in turn, and two queues:
/// copies never wait for what is done with those before.
///
/// Thread: one at a time.
class Stager {
 public:
  Stager();
  ~Stager();
  Stager(const Stager&) = delete;

  /// Where staged bytes may be used; it waits for the copies of stage().
  cudaStream_t stream() const { return stream_; }

  /// Copies two host ranges to a buffer on the device, one behind the other (the second aligned to
  /// 16); returns the device address. Valid until the call after the next.
  const uint8_t* stage(const void* data, int64_t data_bytes, const void* more, int64_t more_bytes);

  /// Marks the buffer of the last stage() as in use until what stream() holds now is done.
  void release();

  /// Copies a host range to `to` on the device.
  void send(std::byte* to, const void* from, int64_t bytes);

  /// Returns when all that was enqueued is done; while weights are loaded, at once.
  void finish() const;
  /// Returns when all that was enqueued is done.
  void wait() const;

 private:
  struct Buffer {
    std::shared_ptr<std::byte> memory;
    int64_t bytes = 0;
    cudaEvent_t free = nullptr;
  };

  cudaStream_t copies_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t copied_ = nullptr;
  std::array<Buffer, 4> pinned_;
  std::array<Buffer, 2> staged_;
  std::size_t next_pinned_ = 0;
  std::size_t next_staged_ = 0;
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

/// OpTable::begin_loading: until end_loading(), pack() and load() return when they have read their
/// sources.
void begin_loading();

/// OpTable::load: bytes of the machine's memory to the device's. Returns when they are in place, or
/// while weights are loaded when they were read. Thread: any.
void load(const std::byte* from, int64_t bytes, std::byte* to);

/// OpTable::pin: pins the pages that hold `bytes`, read only. No page may be pinned twice at once.
std::shared_ptr<const std::byte> pin(std::span<const std::byte> bytes);

/// Waits until all that was loaded is in place.
void wait_for_loads();

/// OpTable::end_loading: wait_for_loads(), and frees the buffers.
void end_loading();

}  // namespace di::ops::cuda
