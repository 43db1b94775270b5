#include "cli/progress.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace di::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr const char* kWipeLine = "\r\x1b[K";

}  // namespace

std::string progress_line(
    const std::string& title, int64_t bytes_done, int64_t bytes_total, double seconds
) {
  constexpr int kCells = 30;
  const double done = static_cast<double>(bytes_done);
  const double total = static_cast<double>(std::max<int64_t>(bytes_total, 1));
  const double share = std::clamp(done / total, 0.0, 1.0);
  const double rate = seconds > 0 ? done / seconds : 0;
  return fmt::format(
      "{}  [{:<{}}] {:3.0f} %  {:.1f} of {:.1f} GB  {:.1f} GB/s",
      title,
      std::string(static_cast<std::size_t>(share * kCells), '#'),
      kCells,
      100 * share,
      done / 1e9,
      total / 1e9,
      rate / 1e9
  );
}

ProgressBar::ProgressBar(std::string title, std::FILE* out)
    : title_(std::move(title)),
      out_(::isatty(::fileno(out)) == 1 ? out : nullptr),
      start_(Clock::now()),
      next_(start_ + kRedrawInterval) {}

ProgressBar::~ProgressBar() {
  if (out_ == nullptr) return;
  std::fputs(kWipeLine, out_);
  std::fflush(out_);
}

void ProgressBar::update(int64_t bytes_done, int64_t bytes_total) {
  const auto now = Clock::now();
  if (out_ == nullptr || now < next_) return;
  next_ = now + kRedrawInterval;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = progress_line(title_, bytes_done, bytes_total, seconds);
  std::fputs(kWipeLine, out_);
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
}

}  // namespace di::cli
