// Recordings: passes of sizes that come again and again, played as graphs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "ops/cuda/graph.h"
#include "tensor/memory.h"

namespace di::engine::cuda {

/// A pass is run the first time that one of its key comes, recorded the second time, and played
/// from then on. When there are too many, the one that was not played for longest gives way; so no
/// step in flight plays it.
///
/// Thread: the one that runs the device.
template <class Key>
class Recordings {
 public:
  explicit Recordings(int64_t most) : most_(most) {}

  /// Runs the pass by `first`, or records it by `enqueue` and plays it. True when it was recorded
  /// before: only then it takes as long as others of its key.
  bool run(
      const Key& key,
      Stream stream,
      const std::function<void()>& first,
      const std::function<void()>& enqueue
  ) {
    Recording& recording = recording_of(key);
    const bool is_known = recording.graph.has_value();
    if (recording.times++ > 0 && !is_known)
      recording.graph = ops::cuda::Graph::record(stream, enqueue);
    if (recording.graph) {
      recording.graph->play(stream);
    } else {
      first();
    }
    return is_known;
  }

  /// What was recorded holds no longer, as when memory that it writes to has moved.
  void forget_graphs() {
    for (auto& [key, recording] : all_)
      recording.graph.reset();
  }

 private:
  struct Recording {
    int64_t times = 0;  // that a pass of this key came
    int64_t last = 0;   // the newest one
    std::optional<ops::cuda::Graph> graph;
  };

  Recording& recording_of(const Key& key) {
    if (!all_.contains(key) && std::ssize(all_) >= most_) {
      all_.erase(std::min_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
        return a.second.last < b.second.last;
      }));
    }
    Recording& recording = all_[key];
    recording.last = ++num_runs_;
    return recording;
  }

  int64_t most_;
  int64_t num_runs_ = 0;
  std::map<Key, Recording> all_;
};

}  // namespace di::engine::cuda
