// From the machine's memory to where a backend's ops read, and back. On the processor nothing
// moves.
#pragma once

#include <span>
#include <vector>

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
