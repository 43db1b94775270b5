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

/// What will happen to a part of a mapping next.
enum class Advice {
  kSequential,  ///< read in order: read far ahead
  kRandom,      ///< read a few bytes here and there: read nothing ahead
  kWillNeed,    ///< read soon: start fetching now, without waiting
};

/// Passes advice on the pages that hold `bytes` to the kernel. Never fails: advice is not needed
/// for a right answer. `bytes` must lie in one mapping.
void advise(std::span<const std::byte> bytes, Advice advice);

/// The whole file as text. Throws like MappedFile::open; refuses files over `max_bytes`.
std::string read_text_file(const std::string& path, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace di
