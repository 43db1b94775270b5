// View: a pointer with a shape. Every op argument is one; none owns memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace di {

/// A dense row-major array of `Rank` dimensions that somebody else owns. Trivially copyable.
template <class T, int Rank>
struct View {
  T* data = nullptr;
  int64_t dims[Rank] = {};

  View() = default;

  /// Wraps `count of dims` elements at `pointer`.
  template <class... Dims>
  requires(sizeof...(Dims) == Rank) explicit View(T* pointer, Dims... sizes)
      : data(pointer), dims{static_cast<int64_t>(sizes)...} {}

  /// A view of T reads as a view of const T.
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor)
  requires std::is_same_v<const U, T> View(const View<U, Rank>& other) : data(other.data) {
    for (int d = 0; d < Rank; ++d)
      dims[d] = other.dims[d];
  }

  int64_t dim(int d) const { return dims[d]; }

  int64_t size() const {
    int64_t product = 1;
    for (const int64_t d : dims)
      product *= d;
    return product;
  }

  /// Elements from one index of the first dimension to the next.
  int64_t stride() const {
    int64_t product = 1;
    for (int d = 1; d < Rank; ++d)
      product *= dims[d];
    return product;
  }

  bool empty() const { return data == nullptr || size() == 0; }

  /// The first element of row i.
  T* row(int64_t i) const { return data + i * stride(); }

  template <class... Indices>
  requires(sizeof...(Indices) == Rank) T& operator()(Indices... indices) const {
    int64_t offset = 0;
    int d = 0;
    ((offset = offset * dims[d++] + static_cast<int64_t>(indices)), ...);
    return data[offset];
  }
};

}  // namespace di
