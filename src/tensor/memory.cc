#include "tensor/memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include <sys/mman.h>

#include "base/error.h"

namespace di {
namespace {

/// The number after `key` in a file of "key: value" or bare values; nothing when there is none.
int64_t number_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (!key.empty() && word != key) continue;
    if (!key.empty()) file >> word;
    const bool digits = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    return digits && word.size() < 19 ? std::stoll(word) : -1;
  }
  return -1;
}

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
  std::shared_ptr<CUstream_st> make_stream() const override { return nullptr; }

  int64_t available() const override {
    constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
    const int64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    const int64_t machine = kilobytes < 0 ? kUnknown : kilobytes * 1024;
    const int64_t limit = number_in("/sys/fs/cgroup/memory.max", "");
    const int64_t used = number_in("/sys/fs/cgroup/memory.current", "");
    const int64_t group = limit < 0 || used < 0 ? kUnknown : std::max<int64_t>(0, limit - used);
    return std::min(machine, group);
  }
};

}  // namespace

const Memory& host_memory() {
  static const HostMemory memory;
  return memory;
}

}  // namespace di
