// From the machine's memory to where a backend's ops read, and back. On the processor nothing
// moves.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "ops/exec.h"
#include "tensor/view.h"

namespace di::ops {

/// `values` where the ops of `exec` can read them: where they are, or a copy in its scratch. They
/// must stay as they are until the ops that read them are done.
template <class T>
View<const T, 1> place(Exec& exec, std::span<const T> values) {
  const Memory& memory = exec.scratch.memory();
  const auto count = static_cast<int64_t>(values.size());
  if (memory.is_host() || values.empty()) return View<const T, 1>(values.data(), count);
  const auto placed = exec.scratch.array<T>(count);
  memory.copy(placed.data, values.data(), static_cast<int64_t>(values.size_bytes()), exec.stream);
  return placed;
}

template <class T>
View<const T, 1> place(Exec& exec, const std::vector<T>& values) {
  return place(exec, std::span<const T>(values));
}

/// Places many small arrays with one copy: they are gathered in `staging` and lie side by side in
/// the exec's scratch.
class Placer {
 public:
  /// Room for `capacity` bytes. `staging` holds as many, in memory that stays as it is until the
  /// copy is done; nullptr: the placer's own. On the processor neither is used.
  Placer(Exec& exec, int64_t capacity, std::byte* staging = nullptr)
      : exec_(exec), capacity_(capacity), staging_(staging) {
    if (exec.scratch.memory().is_host()) return;
    placed_ = exec.scratch.take<std::byte>(capacity);
    if (staging == nullptr) own_.resize(static_cast<std::size_t>(capacity));
    if (staging == nullptr) staging_ = own_.data();
  }

  /// Bytes of `capacity` that an array takes.
  template <class T>
  static int64_t bytes_of(int64_t count) {
    return align_up(count * static_cast<int64_t>(sizeof(T)), kAlignment);
  }

  /// `values` where ops behind flush() read them; an empty view when there are none.
  template <class T>
  View<T, 1> place(std::vector<T>& values) {
    const auto count = static_cast<int64_t>(values.size());
    if (values.empty()) return {};
    if (placed_ == nullptr) return View<T, 1>(values.data(), count);
    DI_CHECK(used_ + bytes_of<T>(count) <= capacity_, "what is placed fits the placer");
    std::memcpy(staging_ + used_, values.data(), values.size() * sizeof(T));
    const View<T, 1> view(reinterpret_cast<T*>(placed_ + used_), count);
    used_ += bytes_of<T>(count);
    return view;
  }

  /// Enqueues the copy. To be called once, after all place() and before the ops that read.
  void flush() {
    if (used_ > 0) exec_.scratch.memory().copy(placed_, staging_, used_, exec_.stream);
  }

 private:
  static constexpr int64_t kAlignment = 16;

  Exec& exec_;
  int64_t capacity_;
  std::byte* staging_;
  std::byte* placed_ = nullptr;  // nullptr: values are read where they are
  std::vector<std::byte> own_;
  int64_t used_ = 0;
};

/// What a view holds once all ops before are done.
template <class T, int Rank>
std::vector<std::remove_const_t<T>> fetch(Exec& exec, const View<T, Rank>& view) {
  std::vector<std::remove_const_t<T>> values(static_cast<std::size_t>(view.size()));
  if (values.empty()) return values;
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  const Memory& memory = exec.scratch.memory();
  memory.copy(values.data(), view.data, bytes, exec.stream);
  memory.wait(exec.stream);
  return values;
}

}  // namespace di::ops
