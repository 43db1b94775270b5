// Tools of the CUDA tests: arrays on the device, an Exec with a stream, and comparison with the
// reference. Every test begins with DI_NEEDS_GPU().
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "ops/ops.h"

namespace di::ops::cuda::testing {

/// Whether this machine has a device that our code runs on.
inline bool has_gpu() {
  int count = 0;
  const bool any = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return any;
}

#define DI_NEEDS_GPU() \
  if (!::di::ops::cuda::testing::has_gpu()) GTEST_SKIP() << "no CUDA device"

/// Copies to or from the device. The copy is over when this returns, for streams that do not wait
/// for the default one too.
inline void copy_now(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// Fills memory of the device with `byte`, likewise.
inline void fill_now(void* to, int byte, std::size_t bytes) {
  check(cudaMemset(to, byte, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// `count` elements on the device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count)
      : count_(count), bytes_(device_memory().allocate(count * sizeof(T), "a test")) {}
  explicit DeviceArray(std::span<const T> values) : DeviceArray(std::ssize(values)) {
    copy_now(bytes_.get(), values.data(), values.size_bytes());
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}

  T* data() const { return reinterpret_cast<T*>(bytes_.get()); }
  int64_t size() const { return count_; }

  /// What it holds after all work of the device.
  std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(count_));
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    copy_now(values.data(), data(), values.size() * sizeof(T));
    return values;
  }

  /// Fills every byte, so that what a kernel leaves unwritten shows.
  void poison(int byte = 0xff) {
    fill_now(data(), byte, static_cast<std::size_t>(count_) * sizeof(T));
  }

 private:
  int64_t count_;
  std::shared_ptr<std::byte> bytes_;
};

/// An Exec on a stream of its own, with scratch on the device; and one for the reference.
class Machine {
 public:
  Machine() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    device_exec_.stream = stream_;
  }
  ~Machine() { cudaStreamDestroy(stream_); }
  Exec& device() { return device_exec_; }
  Exec& host() { return host_exec_; }
  cudaStream_t stream() const { return stream_; }
  void wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
  ThreadPool pool_{4};
  Arena device_scratch_{device_memory()};
  Arena host_scratch_;
  Exec device_exec_{pool_, device_scratch_};
  Exec host_exec_{pool_, host_scratch_};
};

/// ‖a − b‖ / ‖b‖ in double; NaN where a value of `a` is NaN and its twin is not.
template <class T>
double relative_error(const std::vector<T>& a, const std::vector<T>& b) {
  const auto value = [](T x) {
    if constexpr (std::is_same_v<T, bf16>) {
      return static_cast<double>(to_float(x));
    } else {
      return static_cast<double>(x);
    }
  };
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (value(a[i]) - value(b[i])) * (value(a[i]) - value(b[i]));
    norm += value(b[i]) * value(b[i]);
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace di::ops::cuda::testing
