// Benchmarks of the linears on the model's real shapes, with weights that turn beyond the cache.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/benchmarks.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/memory.h"

namespace di::ops::cuda {
namespace {

/// A matrix of the model.
struct Shape {
  const char* name;
  WeightFormat format;
  int64_t rows, cols;
  int64_t groups;  ///< 0: linear_q8
  bool f32 = false;
};

constexpr Shape kShapes[] = {
    {"wq_a 1280x5120 fp8", WeightFormat::kFp8, 1280, 5120, 0},
    {"wkv 512x5120 fp8", WeightFormat::kFp8, 512, 5120, 0},
    {"wq_b 32768x1280 fp8", WeightFormat::kFp8, 32768, 1280, 0},
    {"index wq_b 4096x1280 fp8", WeightFormat::kFp8, 4096, 1280, 0},
    {"wo_a 8x1024x4096 fp8", WeightFormat::kFp8, 8192, 4096, 8},
    {"wo_b 5120x8192 fp8", WeightFormat::kFp8, 5120, 8192, 0},
    {"engram wkv 25600x6144 fp8", WeightFormat::kFp8, 25600, 6144, 0},
    {"gate 384x5120 bf16", WeightFormat::kBf16, 384, 5120, 1, true},
    {"head 129280x5120 bf16", WeightFormat::kBf16, 129280, 5120, 1, true},
};

std::shared_ptr<std::byte> upload(const void* data, int64_t bytes) {
  auto copy = device_memory().allocate(bytes, "a benchmark");
  check(
      cudaMemcpy(copy.get(), data, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
      "upload"
  );
  return copy;
}

/// Random finite values: E4M3 codes below 240, or bf16 near 1.
std::vector<uint8_t> random_values(std::mt19937& random, WeightFormat format, int64_t count) {
  const bool bf16_values = format == WeightFormat::kBf16;
  std::vector<uint8_t> bytes(static_cast<std::size_t>(bf16_values ? 2 * count : count));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto bits = static_cast<uint8_t>(random() >> 8);
    bytes[i] = !bf16_values ? bits & 0xf7 : i % 2 == 0 ? bits : (bits & 0x80) | 0x3f;
  }
  return bytes;
}

/// Several copies of one packed matrix: a slab of random rows, repeated.
class Weights {
 public:
  Weights(std::mt19937& random, const Shape& shape)
      : shape_(shape), bytes_(packed_bytes(shape.format, shape.rows, shape.cols)) {
    const int64_t slab_rows = std::min<int64_t>(shape.rows, 1024);
    const auto values = random_values(random, shape.format, slab_rows * shape.cols);
    const std::vector<uint8_t> scales(
        static_cast<std::size_t>(scale_bytes(shape.format, slab_rows, shape.cols)), 120
    );
    const Weight raw{
        shape.format,
        slab_rows,
        shape.cols,
        reinterpret_cast<const std::byte*>(values.data()),
        scales.data()};
    const int64_t slab = packed_bytes(shape.format, slab_rows, shape.cols);
    copies_ = std::clamp<int64_t>((int64_t{200} << 20) / bytes_, 1, 32);
    data_ = device_memory().allocate(copies_ * bytes_, "a benchmark");
    pack(raw, {0, slab_rows}, data_.get());
    for (int64_t at = slab; at < copies_ * bytes_; at += slab) {
      const int64_t count = std::min(slab, copies_ * bytes_ - at);
      check(
          cudaMemcpy(
              data_.get() + at,
              data_.get(),
              static_cast<std::size_t>(count),
              cudaMemcpyDeviceToDevice
          ),
          "copy"
      );
    }
  }

  int64_t copies() const { return copies_; }
  int64_t bytes() const { return bytes_; }
  Weight copy(int64_t i) const {
    return {shape_.format, shape_.rows, shape_.cols, data_.get() + i % copies_ * bytes_, nullptr};
  }

 private:
  Shape shape_;
  int64_t bytes_;
  int64_t copies_ = 1;
  std::shared_ptr<std::byte> data_;
};

/// Activations and results of one run.
struct Operands {
  std::shared_ptr<std::byte> x, scales, y;

  Operands(std::mt19937& random, const Shape& shape, int64_t rows) {
    const int64_t cols = shape.cols * std::max<int64_t>(1, shape.groups);
    const auto format = shape.groups == 0 ? WeightFormat::kFp8 : WeightFormat::kBf16;
    const auto values = random_values(random, format, rows * cols);
    const std::vector<uint8_t> all_scales(static_cast<std::size_t>(rows * cols / kScaleGroup), 120);
    x = upload(values.data(), std::ssize(values));
    scales = upload(all_scales.data(), std::ssize(all_scales));
    y = device_memory().allocate(rows * shape.rows * 4, "a benchmark");
  }
};

void run(Exec& exec, const Shape& shape, int64_t rows, const Operands& data, const Weight& w) {
  const auto* x = reinterpret_cast<const uint8_t*>(data.x.get());
  if (shape.groups == 0) {
    linear_q8(
        exec,
        {View<bf16, 2>(reinterpret_cast<bf16*>(data.y.get()), rows, shape.rows),
         {View<const uint8_t, 2>(x, rows, shape.cols),
          View<const uint8_t, 2>(
              reinterpret_cast<const uint8_t*>(data.scales.get()), rows, shape.cols / kScaleGroup
          )},
         w}
    );
    return;
  }
  Linear op;
  if (shape.f32) {
    op.y_f32 = View<float, 2>(reinterpret_cast<float*>(data.y.get()), rows, shape.rows);
  } else {
    op.y = View<bf16, 2>(reinterpret_cast<bf16*>(data.y.get()), rows, shape.rows);
  }
  op.x = View<const bf16, 2>(reinterpret_cast<const bf16*>(x), rows, shape.groups * shape.cols);
  op.w = w;
  op.groups = shape.groups;
  linear(exec, op);
}

/// The machine as an op sees it, with a stream of its own.
struct Machine {
  Machine() { check(cudaStreamCreateWithFlags(&exec.stream, cudaStreamNonBlocking), "stream"); }
  ~Machine() { cudaStreamDestroy(exec.stream); }
  Machine(const Machine&) = delete;

  ThreadPool pool{1};
  Arena scratch{device_memory()};
  Exec exec{pool, scratch, nullptr, nullptr};
};

/// Microseconds of one product; its weights turn beyond the cache.
double time_of(
    Exec& exec, const Shape& shape, int64_t rows, const Operands& data, const Weights& weights
) {
  const int repeats =
      static_cast<int>(std::max<int64_t>(rows > 64 ? 4 : 8, rows > 64 ? 1 : weights.copies()));
  return measure(exec.stream, repeats, [&](int i) {
    run(exec, shape, rows, data, weights.copy(i));
  });
}

/// Lengths of slices, in chunks, that cut a matrix into different numbers of them.
std::vector<int> slice_lengths(const Shape& shape) {
  const auto chunks = static_cast<int>(column_chunks(shape.cols));
  std::vector<int> lengths;
  for (int count = 1; count <= 20; ++count) {
    const int length = (chunks / 2 + count - 1) / count * 2;
    if (lengths.empty() || length < lengths.back()) lengths.push_back(length);
  }
  return lengths;
}

}  // namespace

void bench_slices(const SlicesReport& report) {
  Machine machine;
  std::mt19937 random(5);
  for (const Shape& shape : kShapes) {
    const Weights weights(random, shape);
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096}) {
      if (shape.rows > 100000 && rows > 256) continue;
      const Operands data(random, shape, rows);
      const auto time = [&] { return time_of(machine.exec, shape, rows, data, weights); };
      SlicesResult result{.shape = shape.name, .rows = rows};
      result.slices = k_slices(shape.rows, shape.cols).count;
      result.microseconds = time();
      result.best_slices = result.slices;
      result.best_microseconds = result.microseconds;
      for (const int length : slice_lengths(shape)) {
        const OtherSlices other(length);
        const KSlices slices = k_slices(shape.rows, shape.cols);
        if (slices.count == result.slices || (rows > 64 && slices.count > 4)) continue;
        const double microseconds = time();
        if (microseconds >= result.best_microseconds) continue;
        result.best_microseconds = microseconds;
        result.best_slices = slices.count;
      }
      result.microseconds = std::min(result.microseconds, time());
      if (result.best_microseconds >= result.microseconds) {
        result.best_microseconds = result.microseconds;
        result.best_slices = result.slices;
      }
      report(result);
    }
  }
}

void bench_linear(const BenchReport& report) {
  Machine machine;
  std::mt19937 random(5);
  for (const Shape& shape : kShapes) {
    const Weights weights(random, shape);
    for (const int64_t rows : {1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
      if (shape.rows > 100000 && rows > 512) continue;
      const Operands data(random, shape, rows);
      report(
          {.op = shape.groups == 0 ? "linear_q8" : "linear",
           .shape = shape.name,
           .rows = rows,
           .microseconds = time_of(machine.exec, shape, rows, data, weights),
           .bytes = static_cast<double>(weights.bytes()),
           .flops = 2.0 * static_cast<double>(rows * shape.rows * shape.cols)}
      );
    }
  }
}

}  // namespace di::ops::cuda
