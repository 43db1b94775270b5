// How fast weights come out of a mapped file onto the device, beside a plain copy of pinned memory.
#include "bench/load_bench.h"

#include <vector>

#include "base/mapped_file.h"
#include "bench/cuda/device_bench.h"
#include "bench/timing.h"
#include "checkpoint/loader.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/memory.h"

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

/// A job that packs FP4 matrices of that width out of a file.
checkpoint::LoadJob packing_job(
    const MappedFile& file, const std::vector<uint8_t>& scales, std::byte* to
) {
  const int64_t rows = std::ssize(scales) / (kCols / 32);
  const ops::Weight raw{ops::WeightFormat::kFp4, rows, kCols, file.bytes().data(), scales.data()};
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
  constexpr int64_t kRowBytes = kCols / 2;
  const int64_t rows = bytes / kRowBytes / ops::kPackRows * ops::kPackRows;
  const ops::OpTable& table = ops::cuda_ops();
  const ScratchFolder scratch(folder);
  const std::string weights = write_weights(scratch, rows * kRowBytes);
  const std::vector<uint8_t> scales(static_cast<std::size_t>(rows * kCols / 32), 127);
  const auto to = table.memory().allocate(
      table.packed_bytes(ops::WeightFormat::kFp4, rows, kCols), "a benchmark"
  );
  const double copied = copy_rate(table.memory());
  const auto measure = [&](const char* name, const auto& job_of) {
    const double seconds = time_calls({}, [&] {
                             const MappedFile file = MappedFile::open(weights);
                             checkpoint::run_load_jobs({job_of(file)}, pool);
                           }).best_s;
    const double rate = static_cast<double>(rows * kRowBytes) / seconds;
    Json json;
    json.set("name", name).set("backend", "cuda").set("threads", pool.num_threads());
    json.set("bytes", rows * kRowBytes).set("us", seconds * 1e6);
    json.set("gbps", rate / 1e9).set("copy_gbps", copied / 1e9).set("share", rate / copied);
    emit(json);
  };
  measure("load", [&](const MappedFile& file) {
    checkpoint::LoadJob job;
    job.sources.push_back(file.bytes());
    job.num_units = std::ssize(file.bytes());
    job.convert = [&file, &to, &table](int64_t begin, int64_t end) {
      table.load(file.bytes().data() + begin, end - begin, to.get() + begin);
    };
    return job;
  });
  measure("load_pack", [&](const MappedFile& file) { return packing_job(file, scales, to.get()); });
  table.end_loading();
}

}  // namespace di::bench::cuda
