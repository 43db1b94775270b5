#include "bench/memory_bench.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bench/limits.h"

namespace di::bench {
namespace {

struct Point {
  int threads;
  double read_gbps;
  double fma_gflops;
};

Json result(
    const char* name,
    const Point& point,
    const MemoryBenchOptions& options,
    double us,
    double gbps,
    double gflops,
    double share
) {
  return Json::Object{
      {"name", name},
      {"backend", "host"},
      {"isa", name_of(options.isa)},
      {"rows", point.threads},
      {"shape", fmt::format("{} threads", point.threads)},
      {"us", us},
      {"gbps", gbps},
      {"gflops", gflops},
      {"share", share}};
}

}  // namespace

void bench_memory(const MemoryBenchOptions& options, const Emit& emit) {
  const int most = ThreadPool(options.max_threads).num_threads();
  std::vector<Point> points;
  for (int threads = 1; threads <= most;
       threads = threads < most ? std::min(threads * 2, most) : most + 1) {
    ThreadPool pool(threads);
    points.push_back({threads, measure_read(pool, options.bytes), measure_fma(pool, options.isa)});
  }
  double best_read = 0;
  double best_fma = 0;
  for (const Point& point : points) {
    best_read = std::max(best_read, point.read_gbps);
    best_fma = std::max(best_fma, point.fma_gflops);
  }
  for (const Point& point : points) {
    const double us = static_cast<double>(options.bytes) / point.read_gbps * 1e-3;
    emit(result("read", point, options, us, point.read_gbps, 0, point.read_gbps / best_read));
    emit(result("fma", point, options, 0, 0, point.fma_gflops, point.fma_gflops / best_fma));
  }
}

}  // namespace di::bench
