#include "bench/big_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/error.h"

namespace di::bench {

BigMemory::BigMemory(int64_t bytes) : size_(static_cast<std::size_t>(bytes)) {
  void* data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(
        ErrorCode::kOutOfMemory,
        fmt::format("a benchmark needs {} bytes of memory, which the system refused", bytes)
    );
  }
  ::madvise(data, size_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(data);
}

BigMemory::~BigMemory() {
  ::munmap(data_, size_);
}

}  // namespace di::bench
