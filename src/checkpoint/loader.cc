#include "checkpoint/loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/math.h"

namespace di::checkpoint {
namespace {

/// Source bytes of a piece: long enough that handing out costs nothing, short enough that the last
/// pieces end together.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

/// How far the disk may be ahead of the conversions: enough for a deep queue, little against RAM.
constexpr int64_t kReadAheadBytes = int64_t{256} << 20;

int64_t source_bytes(const LoadJob& job) {
  int64_t sum = 0;
  for (const auto& source : job.sources)
    sum += static_cast<int64_t>(source.size());
  return sum;
}

/// Units [begin, end) of one job; `position` counts the source bytes before it in the whole load.
struct Piece {
  const LoadJob* job;
  int64_t begin;
  int64_t end;
  int64_t bytes;
  int64_t position;
};

std::vector<Piece> cut(const std::vector<LoadJob>& jobs) {
  std::vector<Piece> pieces;
  int64_t position = 0;
  for (const LoadJob& job : jobs) {
    const int64_t bytes = source_bytes(job);
    const int64_t count = std::clamp(ceil_div(bytes, kPieceBytes), int64_t{1}, job.num_units);
    const int64_t units = ceil_div(job.num_units, count);
    int64_t before = 0;
    for (int64_t begin = 0; begin < job.num_units; begin += units) {
      const int64_t end = std::min(job.num_units, begin + units);
      const double share = static_cast<double>(end) / static_cast<double>(job.num_units);
      const auto until =
          end == job.num_units ? bytes : static_cast<int64_t>(static_cast<double>(bytes) * share);
      pieces.push_back({&job, begin, end, until - before, position + before});
      before = until;
    }
    position += bytes;
  }
  return pieces;
}

/// Asks the kernel for the sources in order, a fixed distance ahead of the pieces being converted.
class ReadAhead {
 public:
  explicit ReadAhead(const std::vector<LoadJob>& jobs) {
    for (const LoadJob& job : jobs) {
      for (std::span<const std::byte> left : job.sources) {
        while (!left.empty()) {
          const auto chunk = left.first(std::min<std::size_t>(left.size(), kPieceBytes));
          chunks_.push_back(chunk);
          left = left.subspan(chunk.size());
        }
      }
    }
  }

  /// A piece that starts at `position` is about to run.
  void reach(int64_t position) {
    const std::lock_guard lock(mutex_);
    while (next_ < chunks_.size() && asked_ < position + kReadAheadBytes) {
      advise(chunks_[next_], Advice::kWillNeed);
      asked_ += static_cast<int64_t>(chunks_[next_].size());
      ++next_;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::span<const std::byte>> chunks_;
  std::size_t next_ = 0;
  int64_t asked_ = 0;
};

/// What the threads of one load share.
class Load {
 public:
  Load(const std::vector<LoadJob>& jobs, const LoadProgress& progress)
      : pieces_(cut(jobs)), read_ahead_(jobs), progress_(progress) {
    for (const LoadJob& job : jobs)
      total_ += source_bytes(job);
  }

  void run(ThreadPool& pool) {
    pool.parallel_for(static_cast<int64_t>(pieces_.size()), 1, [this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        run_piece(pieces_[static_cast<std::size_t>(i)]);
    });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void run_piece(const Piece& piece) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      read_ahead_.reach(piece.position);
      piece.job->convert(piece.begin, piece.end);
      report(piece.bytes);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void report(int64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_(done_, total_);
  }

  std::vector<Piece> pieces_;
  ReadAhead read_ahead_;
  const LoadProgress& progress_;
  std::mutex mutex_;  // guards done_, error_ and the calls of progress_
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
};

}  // namespace

LoadJob copy_job(std::span<const std::byte> source, std::byte* destination) {
  return {
      {source},
      std::max<int64_t>(1, static_cast<int64_t>(source.size())),
      [source, destination](int64_t begin, int64_t end) {
        if (source.empty()) return;
        std::memcpy(
            destination + begin, source.data() + begin, static_cast<std::size_t>(end - begin)
        );
      }};
}

void run_load_jobs(std::vector<LoadJob> jobs, ThreadPool& pool, const LoadProgress& progress) {
  for (const LoadJob& job : jobs)
    DI_CHECK(job.num_units >= 1 && job.convert, "a load job has work to do");
  const auto place = [](const LoadJob& job) {
    return job.sources.empty() ? nullptr : job.sources.front().data();
  };
  std::stable_sort(jobs.begin(), jobs.end(), [&](const LoadJob& a, const LoadJob& b) {
    return std::less<>()(place(a), place(b));
  });
  Load(jobs, progress).run(pool);
}

}  // namespace di::checkpoint
