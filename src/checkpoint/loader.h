// Moves weights out of a mapped checkpoint: runs conversions on all threads, cut into pieces, in
// the order in which the bytes lie in the files, with the disk reading ahead of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace di::checkpoint {

/// The conversion of one tensor, or of a few that belong together (a weight and its scales).
struct LoadJob {
  /// The mapped bytes that `convert` reads; what progress counts and read-ahead fetches.
  std::vector<std::span<const std::byte>> sources;
  /// Into how many units (rows, tiles) the work may be cut, ≥ 1.
  int64_t num_units = 1;
  /// Converts units [begin, end). Called from several threads at once, over disjoint ranges. May
  /// throw.
  std::function<void(int64_t begin, int64_t end)> convert;
};

/// Told after each piece, from one thread at a time.
using LoadProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

/// The job that copies `source` to `destination`, which holds as many bytes.
LoadJob copy_job(std::span<const std::byte> source, std::byte* destination);

/// Runs all jobs, ordered by where their first source lies, and returns when the last is done.
/// When a conversion throws, no further piece starts and the first exception is thrown on.
void run_load_jobs(
    std::vector<LoadJob> jobs, ThreadPool& pool, const LoadProgress& progress = nullptr
);

}  // namespace di::checkpoint
