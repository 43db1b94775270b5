#include "base/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace di {

MappedFile MappedFile::open(const std::string& path, Access access) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // no waiting on a pipe
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    throw Error(code, fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  }
  struct stat info {};
  const bool is_file = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  MappedFile file;
  file.path_ = path;
  if (is_file && info.st_size > 0) {
    const auto size = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) {
      file.data_ = static_cast<const std::byte*>(data);
      file.size_ = size;
      ::madvise(data, size, access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
    }
  }
  const int reason = errno;
  ::close(fd);
  if (!is_file) throw Error(ErrorCode::kIo, fmt::format("{}: not a regular file", path));
  if (info.st_size > 0 && file.data_ == nullptr) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot map: {}", path, std::strerror(reason)));
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void advise(std::span<const std::byte> bytes, Advice advice) {
  static constexpr int kFlags[] = {MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED};
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first_page = begin / page * page;
  const std::size_t size = begin + bytes.size() - first_page;
  ::madvise(reinterpret_cast<void*>(first_page), size, kFlags[static_cast<int>(advice)]);
}

std::string read_text_file(const std::string& path, std::size_t max_bytes) {
  const MappedFile file = MappedFile::open(path);
  if (file.bytes().size() > max_bytes) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "{}: too large: {} bytes, at most {} are read", path, file.bytes().size(), max_bytes
        )
    );
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace di
