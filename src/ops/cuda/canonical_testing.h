// Tools of the tests of the canonical arithmetic: arrays that the reference and the device both
// read where they lie, so that one struct of views runs on both tables; and equality of bits.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "ops/cpu/testing.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda::testing {

/// An array in pinned memory of the machine, which the device reads and writes through the bus.
template <class T>
class SharedArray {
 public:
  /// `count` elements of unlikely bytes.
  explicit SharedArray(int64_t count) : count_(count), bytes_(memory(count)) {
    std::memset(bytes_.get(), 0xa5, static_cast<std::size_t>(count) * sizeof(T));
  }
  explicit SharedArray(const std::vector<T>& values)
      : count_(std::ssize(values)), bytes_(memory(std::ssize(values))) {
    std::memcpy(bytes_.get(), values.data(), values.size() * sizeof(T));
  }
  T* data() const { return reinterpret_cast<T*>(bytes_.get()); }
  int64_t size() const { return count_; }

  /// All of it in `rows` rows, or in a shape.
  View<T, 2> rows(int64_t rows) const { return View<T, 2>(data(), rows, count_ / rows); }
  template <class... Dims>
  View<T, sizeof...(Dims)> view(Dims... dims) const {
    return View<T, sizeof...(Dims)>(data(), dims...);
  }

 private:
  static std::shared_ptr<std::byte> memory(int64_t count) {
    return pinned_memory().allocate(
        std::max<int64_t>(1, count) * static_cast<int64_t>(sizeof(T)), "a test"
    );
  }

  int64_t count_;
  std::shared_ptr<std::byte> bytes_;
};

/// Elements of two arrays whose bits differ.
template <class T>
int64_t different_bits(const SharedArray<T>& a, const SharedArray<T>& b) {
  int64_t count = a.size() == b.size() ? 0 : -1;
  for (int64_t i = 0; i < b.size() && count >= 0; ++i)
    count += std::memcmp(a.data() + i, b.data() + i, sizeof(T)) != 0 ? 1 : 0;
  return count;
}

/// A matrix as both tables want it.
class SharedWeight {
 public:
  explicit SharedWeight(cpu::testing::RawWeight raw)
      : raw_(std::move(raw)), values_(raw_.data), packed_(bytes(raw_)) {
    for (int64_t row = 0; packed_.size() > 0 && row < raw_.rows; row += kPackRows) {
      const RowRange rows{row, std::min(raw_.rows, row + kPackRows)};
      canonical_cuda_ops().pack(raw_.weight(), rows, packed_.data());
    }
  }
  Weight host() const { return raw_.weight(); }
  Weight device() const {
    return {raw_.format, raw_.rows, raw_.cols, (packed_.size() > 0 ? packed_ : values_).data()};
  }

 private:
  static int64_t bytes(const cpu::testing::RawWeight& raw) {
    return canonical_cuda_ops().packed_bytes(raw.format, raw.rows, raw.cols);
  }

  cpu::testing::RawWeight raw_;
  SharedArray<std::byte> values_;
  SharedArray<std::byte> packed_;
};

}  // namespace di::ops::cuda::testing
