// Every family of kernels, by its own benchmark.
#include "bench/cuda/device_bench.h"
#include "ops/cuda/benchmarks.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/memory.h"
#include "sampling/cuda/benchmarks.h"

namespace di::bench::cuda {
namespace {

using ops::cuda::BenchReport;
using ops::cuda::BenchResult;

struct Family {
  const char* name;
  void (*run)(const BenchReport&);
};

constexpr Family kFamilies[] = {
    {"linears", ops::cuda::bench_linear},
    {"experts", ops::cuda::bench_experts},
    {"attention", ops::cuda::bench_attention},
    {"index", ops::cuda::bench_index},
    {"rows", ops::cuda::bench_rows},
    {"draw", sampling::cuda::bench_draw},
    {"verify", sampling::cuda::bench_verify},
};

}  // namespace

void bench_ops(const std::string& only, const Emit& emit) {
  ops::cuda_ops();  // refuses machines without a device
  const auto stream = ops::cuda::device_memory().make_stream();
  const double read_rate = ops::cuda::measured_read_rate(stream.get());
  emit(Json::Object{{"name", "read"}, {"backend", "cuda"}, {"tbps", read_rate * 1e-12}});
  for (const Family& family : kFamilies) {
    if (!std::string(family.name).starts_with(only)) continue;
    family.run([&](const BenchResult& result) {
      const double rate = result.bytes / result.microseconds * 1e6;
      emit(Json::Object{
          {"name", result.op},
          {"backend", "cuda"},
          {"family", family.name},
          {"shape", result.shape},
          {"rows", result.rows},
          {"us", result.microseconds},
          {"tbps", rate * 1e-12},
          {"share_of_read_rate", rate / read_rate},
          {"tflops", result.flops / result.microseconds * 1e-6}});
    });
  }
}

}  // namespace di::bench::cuda
