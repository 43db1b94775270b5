// How fast weights come out of a mapped file onto the device, beside a plain copy of pinned memory.
#include "bench/load_bench.h"

#include <algorithm>
#include <chrono>

#include "base/mapped_file.h"
#include "bench/cuda/device_bench.h"
#include "bench/timing.h"
#include "checkpoint/loader.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/staging.h"

namespace di::bench::cuda {
namespace {

/// Bytes a second of a copy from pinned memory, all of it at once.
double copy_rate(const Memory& device) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  const auto from = ops::cuda::pinned_memory().allocate(kBytes, "a benchmark");
  const auto to = device.allocate(kBytes, "a benchmark");
  const auto stream = device.make_stream();
  const double seconds = time_calls({}, [&] {
                           device.copy(to.get(), from.get(), kBytes, stream.get());
                           device.wait(stream.get());
                         }).best_s;
  return static_cast<double>(kBytes) / seconds;
}

constexpr int64_t kCols = 5120;  ///< of the release's matrices
constexpr int64_t kCodeBytes = kCols / 2;
constexpr int64_t kRowBytes = kCodeBytes + kCols / 32;  ///< FP4 codes and their scales

/// A job that packs an FP4 matrix of that width out of a file: its codes, then its scales.
checkpoint::LoadJob packing_job(const MappedFile& file, std::byte* to) {
  const int64_t rows = std::ssize(file.bytes()) / kRowBytes;
  const std::byte* codes = file.bytes().data();
  const auto* scales = reinterpret_cast<const uint8_t*>(codes + rows * kCodeBytes);
  const ops::Weight raw{ops::WeightFormat::kFp4, rows, kCols, codes, scales};
  checkpoint::LoadJob job;
  job.sources.push_back(file.bytes());
  job.num_units = rows / ops::kPackRows;
  job.convert = [raw, to](int64_t begin, int64_t end) {
    ops::cuda_ops().pack(raw, {begin * ops::kPackRows, end * ops::kPackRows}, to);
  };
  return job;
}

}  // namespace

void bench_load(const std::string& folder, int64_t bytes, ThreadPool& pool, const Emit& emit) {
  const int64_t rows = bytes / kRowBytes / ops::kPackRows * ops::kPackRows;
  const ops::OpTable& table = ops::cuda_ops();
  const ScratchFolder scratch(folder);
  const std::string weights = write_weights(scratch, rows * kRowBytes);
  const int64_t most_bytes =
      std::max(rows * kRowBytes, table.packed_bytes(ops::WeightFormat::kFp4, rows, kCols));
  const auto to = table.memory().allocate(most_bytes, "a benchmark");
  const double copied = copy_rate(table.memory());
  const auto measure = [&](const char* name, const auto& job_of) {
    double seconds = 0;
    for (int round = 0; round < 6; ++round) {  // the first one pins buffers
      const MappedFile file = MappedFile::open(weights);
      const auto start = std::chrono::steady_clock::now();
      checkpoint::run_load_jobs({job_of(file)}, pool);
      ops::cuda::wait_for_loads();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds = round < 2 ? elapsed.count() : std::min(seconds, elapsed.count());
    }
    const double rate = static_cast<double>(rows * kRowBytes) / seconds;
    Json json;
    json.set("name", name).set("backend", "cuda").set("threads", pool.num_threads());
    json.set("bytes", rows * kRowBytes).set("us", seconds * 1e6);
    json.set("gbps", rate / 1e9).set("copy_gbps", copied / 1e9).set("share", rate / copied);
    emit(json);
  };
  table.begin_loading();
  measure("load", [&](const MappedFile& file) {
    checkpoint::LoadJob job;
    job.sources.push_back(file.bytes());
    job.num_units = std::ssize(file.bytes());
    job.convert = [&file, &to, &table](int64_t begin, int64_t end) {
      table.load(file.bytes().data() + begin, end - begin, to.get() + begin);
    };
    return job;
  });
  measure("load_pack", [&](const MappedFile& file) { return packing_job(file, to.get()); });
  table.end_loading();
}

}  // namespace di::bench::cuda
