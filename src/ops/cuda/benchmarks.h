// The benchmarks of the cuda backend, one function for each family of kernels, and the stopwatch
// that they share. `deepinfer bench ops --backend cuda` runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

/// One measurement.
struct BenchResult {
  std::string op;     ///< entry of the op table, or a named peer
  std::string shape;  ///< what of it: "wq_b 32768x1280 fp8"
  int64_t rows = 0;
  double microseconds = 0;  ///< median of one call
  double bytes = 0;         ///< that the op must move through device memory at least
  double flops = 0;         ///< that it must do: two for a product and a sum
};
using BenchReport = std::function<void(const BenchResult&)>;

/// Median time of one call of `enqueue` in microseconds, launch gaps excluded: a graph of `repeats`
/// calls is captured from the stream and replayed nine times after two warm-ups. `enqueue(i)`
/// should turn among operands by i, so that together they exceed the 50 MB cache where memory is
/// measured.
double measure(cudaStream_t stream, int repeats, const std::function<void(int)>& enqueue);

/// Keeps the device busy for `seconds`, while the processor enqueues what is to be timed behind.
void occupy(cudaStream_t stream, double seconds);

/// Read rate of the device's memory in bytes a second: the ceiling of everything that streams.
double measured_read_rate(cudaStream_t stream);

/// What it costs that a product is cut into the same slices for any number of rows.
struct SlicesResult {
  std::string shape;
  int64_t rows = 0;
  int64_t slices = 0;            ///< that the matrix' size alone chooses
  double microseconds = 0;       ///< with them
  int64_t best_slices = 0;       ///< the fastest number for these rows, of up to 20
  double best_microseconds = 0;  ///< with them; not above `microseconds`
};
using SlicesReport = std::function<void(const SlicesResult&)>;

/// All matrices of the model but the experts'. Every time is measured as by measure().
void bench_slices(const SlicesReport& report);

void bench_rows(const BenchReport& report);       ///< norms, streams, hyper-connections, Engram
void bench_index(const BenchReport& report);      ///< scores, selection, compressor
void bench_experts(const BenchReport& report);    ///< mixture of experts at the real sizes
void bench_linear(const BenchReport& report);     ///< the linears and the head
void bench_attention(const BenchReport& report);  ///< sparse attention and its stores

}  // namespace di::ops::cuda
