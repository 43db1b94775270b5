// A read-only file in the address space.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace di {

/// Owns one read-only mapping; moves, does not copy. An empty file maps to an empty span.
class MappedFile {
 public:
  /// What the reader will do, passed on to the kernel.
  enum class Access { kSequential, kRandom };

  MappedFile() = default;

  /// Maps `path`. Throws Error{kNotFound} or Error{kIo} naming the path and the reason.
  static MappedFile open(const std::string& path, Access access = Access::kSequential);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole file as text. Throws like MappedFile::open; refuses files over `max_bytes`.
std::string read_text_file(const std::string& path, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace di
