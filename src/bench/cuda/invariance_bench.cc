// What it costs on the device that a row's bits depend on no other row.
#include <map>
#include <string>

#include "bench/cuda/device_bench.h"
#include "ops/cuda/benchmarks.h"
#include "ops/cuda/cuda_ops.h"

namespace di::bench::cuda {
namespace {

/// Microseconds with our slices, and with the best for a number of rows.
struct Prices {
  double ours = 0;
  double free = 0;
};

bool is_in_every_layer(const std::string& shape) {
  return !shape.starts_with("engram") && !shape.starts_with("head");
}

Json line(const std::string& name, int64_t rows, const Prices& prices) {
  return Json::Object{
      {"name", "invariance/" + name},
      {"backend", "cuda"},
      {"rows", rows},
      {"us", prices.ours},
      {"free_us", prices.free},
      {"batch_cost", prices.ours / prices.free - 1}};
}

}  // namespace

void bench_invariance(const Emit& emit) {
  ops::cuda_ops();                  // refuses machines without a device
  std::map<int64_t, Prices> layer;  // by rows
  ops::cuda::bench_slices([&](const ops::cuda::SlicesResult& result) {
    const Prices prices{result.microseconds, result.best_microseconds};
    Json json = line(result.shape, result.rows, prices);
    json.set("slices", result.slices).set("free_slices", result.best_slices);
    emit(json);
    if (!is_in_every_layer(result.shape)) return;
    layer[result.rows].ours += prices.ours;
    layer[result.rows].free += prices.free;
  });
  for (const auto& [rows, prices] : layer)
    emit(line("layer", rows, prices));
}

}  // namespace di::bench::cuda
