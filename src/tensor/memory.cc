#include "tensor/memory.h"

#include <cstring>
#include <string>

#include <sys/mman.h>

#include "base/error.h"

namespace di {
namespace {

class HostMemory final : public Memory {
 public:
  bool is_host() const override { return true; }

  std::shared_ptr<std::byte> allocate(int64_t bytes, const char* what) const override {
    if (bytes == 0) return nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(
          ErrorCode::kOutOfMemory,
          "the system refuses " + std::to_string(bytes) + " bytes of memory for " + what
      );
    }
    ::madvise(data, size, MADV_HUGEPAGE);
    return {static_cast<std::byte*>(data), [size](std::byte* p) { ::munmap(p, size); }};
  }

  void copy(void* to, const void* from, int64_t bytes, Stream) const override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void wait(Stream) const override {}
};

}  // namespace

const Memory& host_memory() {
  static const HostMemory memory;
  return memory;
}

}  // namespace di
