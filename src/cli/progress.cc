#include "cli/progress.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace di::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr const char* kWipeLine = "\r\x1b[K";

/// How far, and how fast.
std::string amounts(double done, double total, double rate, ProgressUnit unit) {
  if (unit == ProgressUnit::kTokens)
    return fmt::format("{:.0f} of {:.0f} tokens  {:.0f} tokens/s", done, total, rate);
  return fmt::format("{:.1f} of {:.1f} GB  {:.1f} GB/s", done / 1e9, total / 1e9, rate / 1e9);
}

}  // namespace

std::string progress_line(
    const std::string& title, int64_t done, int64_t total, double seconds, ProgressUnit unit
) {
  constexpr int kCells = 30;
  const auto passed = static_cast<double>(done);
  const auto all = static_cast<double>(std::max<int64_t>(total, 1));
  const double share = std::clamp(passed / all, 0.0, 1.0);
  return fmt::format(
      "{}  [{:<{}}] {:3.0f} %  {}",
      title,
      std::string(static_cast<std::size_t>(share * kCells), '#'),
      kCells,
      100 * share,
      amounts(passed, all, seconds > 0 ? passed / seconds : 0, unit)
  );
}

ProgressBar::ProgressBar(std::string title, ProgressUnit unit, std::FILE* out)
    : title_(std::move(title)),
      unit_(unit),
      out_(::isatty(::fileno(out)) == 1 ? out : nullptr),
      start_(Clock::now()),
      next_(start_ + kRedrawInterval) {}

ProgressBar::~ProgressBar() {
  if (out_ == nullptr) return;
  std::fputs(kWipeLine, out_);
  std::fflush(out_);
}

void ProgressBar::update(int64_t done, int64_t total) {
  const auto now = Clock::now();
  if (out_ == nullptr || now < next_) return;
  next_ = now + kRedrawInterval;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = progress_line(title_, done, total, seconds, unit_);
  std::fputs(kWipeLine, out_);
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
}

}  // namespace di::cli
