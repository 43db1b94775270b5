// Memory: where the operands of a backend lie, in the machine's memory or in a device's. What
// allocates for a backend asks its Memory, so that views point where the backend's ops may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct CUstream_st;  // CUDA's own name of a queue

namespace di {

/// The queue of a device that ops and copies enqueue themselves on; nullptr for the processor,
/// whose ops are done when they return.
using Stream = CUstream_st*;

/// One kind of memory. Thread: any.
class Memory {
 public:
  virtual ~Memory() = default;

  /// Whether the processor may dereference pointers into it.
  virtual bool is_host() const = 0;

  /// `bytes` of unspecified content, aligned to 256 bytes; nullptr for 0. Throws
  /// Error{kOutOfMemory} that names `what` it was for.
  virtual std::shared_ptr<std::byte> allocate(int64_t bytes, const char* what) const = 0;

  /// Copies between any two places of this memory and the machine's, behind what `stream` already
  /// holds. Host memory must stay as it is until wait(stream), unless this memory is the host's.
  virtual void copy(void* to, const void* from, int64_t bytes, Stream stream) const = 0;

  /// Returns when all that `stream` holds is done.
  virtual void wait(Stream stream) const = 0;

  /// A queue of its own; nullptr where ops need none.
  virtual std::shared_ptr<CUstream_st> make_stream() const = 0;

  /// Bytes that may be taken now: of the device's free memory, or of the machine's without swapping
  /// (MemAvailable) and within the limit of this process's control group. INT64_MAX when nobody
  /// says.
  virtual int64_t available() const = 0;
};

/// The machine's own memory. Pages are committed when they are first written.
const Memory& host_memory();

}  // namespace di
