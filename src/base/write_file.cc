#include "base/write_file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace di {
namespace {

constexpr mode_t kUsual = 0666;  // less what the umask takes away

[[noreturn]] void fail(const std::string& path, int reason) {
  throw Error(
      ErrorCode::kIo, fmt::format("{}: it cannot be written: {}", path, std::strerror(reason))
  );
}

/// Writes all of `text` to the disk; false with errno when that fails.
bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(descriptor) == 0;
}

/// Writes a new file with the permissions of `path`, if it exists; 0 or the reason why not.
int write_new(const std::string& name, const std::string& path, std::string_view text) {
  const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kUsual);
  if (descriptor < 0) return errno;
  struct stat old = {};
  bool good = ::stat(path.c_str(), &old) != 0 || ::fchmod(descriptor, old.st_mode & 07777) == 0;
  good = good && write_all(descriptor, text);
  int reason = good ? 0 : errno;
  if (::close(descriptor) != 0 && reason == 0) reason = errno;
  return reason;
}

}  // namespace

void write_file_at_once(const std::string& path, std::string_view text) {
  static std::atomic<int64_t> count = 0;  // of this process, so that threads do not meet
  const std::string name = fmt::format("{}.{}.{}.new", path, ::getpid(), count++);
  int reason = write_new(name, path, text);
  if (reason == EEXIST) fail(name, reason);
  if (reason == 0 && ::rename(name.c_str(), path.c_str()) != 0) reason = errno;
  if (reason == 0) return;
  ::unlink(name.c_str());
  fail(path, reason);
}

}  // namespace di
