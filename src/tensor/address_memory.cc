#include "tensor/address_memory.h"

#include <limits>
#include <string>

#include <sys/mman.h>

#include "base/error.h"

namespace di {
namespace {

class AddressMemory final : public Memory {
 public:
  bool is_host() const override { return false; }

  std::shared_ptr<std::byte> allocate(int64_t bytes, const char* what) const override {
    if (bytes == 0) return nullptr;
    const auto size = static_cast<std::size_t>(bytes);
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* data = ::mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(
          ErrorCode::kOutOfMemory,
          "the system has no " + std::to_string(bytes) + " addresses for " + what
      );
    }
    return {static_cast<std::byte*>(data), [size](std::byte* p) { ::munmap(p, size); }};
  }

  void copy(void*, const void*, int64_t, Stream) const override {}
  void wait(Stream) const override {}
  std::shared_ptr<CUstream_st> make_stream() const override { return nullptr; }
  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
};

}  // namespace

const Memory& address_memory() {
  static const AddressMemory memory;
  return memory;
}

}  // namespace di
