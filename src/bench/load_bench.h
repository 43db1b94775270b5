// How fast weights come out of a checkpoint whose bytes are in the page cache, beside plain reads
// of the same bytes; and how long a folder of the release's size takes to open.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace di::bench {

/// A folder that disappears with its content.
class ScratchFolder {
 public:
  /// In `parent`. Throws Error{kIo}.
  explicit ScratchFolder(const std::string& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A file of `bytes` in the folder, in the page cache once written; its path. Throws Error{kIo}.
std::string write_weights(const ScratchFolder& scratch, int64_t bytes);

/// Copies a temporary file of `bytes` into memory through the load engine and, for comparison, with
/// read(2) on the same threads. One result with the fields name, backend, isa, rows, shape, us,
/// gbps, gflops and share, which is the engine's rate over that of read(2). Needs 2 × `bytes` of
/// memory and `bytes` of space in `folder`. Throws Error{kIo}.
Json bench_load(const std::string& folder, int64_t bytes, ThreadPool& pool);

/// bench_load, but each byte goes through the packing of FP4 matrices of the release's width into
/// the layout of `table`, which must be one that packs.
Json bench_pack(
    const std::string& folder, int64_t bytes, const ops::OpTable& table, ThreadPool& pool
);

/// Opens a folder that holds every tensor of the release as a hole in a sparse file. Fields as
/// above; `rows` is the number of tensors, `share` 0. Needs 20 MB in `folder`, on a file system
/// with sparse files. Throws Error{kIo}.
Json bench_open(const std::string& folder, ThreadPool& pool);

}  // namespace di::bench
