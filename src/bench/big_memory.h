// Memory for benchmarks that read more than the caches hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace di::bench {

/// Zeroed memory in huge pages where the system grants them, as the model keeps its weights.
class BigMemory {
 public:
  /// Throws Error{kOutOfMemory}.
  explicit BigMemory(int64_t bytes);
  ~BigMemory();
  BigMemory(const BigMemory&) = delete;
  BigMemory& operator=(const BigMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t size_;
};

}  // namespace di::bench
