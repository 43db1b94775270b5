// A model folder, opened: configuration, mapped shards, and every tensor of the model found once,
// with the type and shape that the configuration asks for. No weight is read yet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "checkpoint/coverage.h"
#include "checkpoint/safetensors.h"
#include "config/model_config.h"

namespace di::checkpoint {

/// A tensor inside a mapped shard; valid as long as its Checkpoint. Bytes may start at any address.
struct TensorView {
  DType dtype;
  std::span<const int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Owns the mappings of one model folder. Immutable after open; moves, does not copy.
class Checkpoint {
 public:
  /// Opens `folder`: config.json, then the index with its shards or a single model.safetensors,
  /// parsed on the threads of `pool`. The tables of n-gram memory are advised for random access, so
  /// that they may be used in place.
  /// Throws Error{kNotFound, kIo, kInvalidFile, kUnsupported} as the parts do; a tensor that the
  /// index and its shard disagree on, or that stands in two places, is Error{kInvalidFile}.
  /// Cost: tens of milliseconds for 100,000 tensors, whatever their bytes.
  static Checkpoint open(const std::string& folder, ThreadPool& pool);

  Checkpoint(Checkpoint&&) noexcept = default;
  Checkpoint& operator=(Checkpoint&&) noexcept = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const ModelConfig& config() const { return config_; }
  const std::string& folder() const { return folder_; }

  /// The tensor called `name` (without "model."). Every name of expected_tensors(config()) is
  /// there; for another, throws Error{kNotFound}.
  TensorView find(std::string_view name) const;

  int64_t num_tensors() const { return static_cast<int64_t>(by_name_.size()); }
  /// Bytes of all tensors.
  int64_t bytes() const;

 private:
  struct Shard {
    std::string path;
    MappedFile file;
    std::vector<TensorRef> tensors;
  };

  Checkpoint() = default;
  void map_shards(const std::vector<std::string>& files, ThreadPool& pool);
  void index_names();
  void check_against_index(const std::vector<std::pair<std::string, std::size_t>>& listed) const;
  void advise_tables() const;

  std::string folder_;
  ModelConfig config_;
  std::vector<Shard> shards_;
  TensorsByName by_name_;  // points into shards_, whose tensors never move
};

}  // namespace di::checkpoint
