#include "checkpoint/checkpoint.h"

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/index.h"
#include "checkpoint/inventory.h"
#include "checkpoint/names.h"

namespace di::checkpoint {
namespace {

[[noreturn]] void refuse(std::string_view where, const std::string& why) {
  throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {}", where, why));
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& folder, ThreadPool& pool) {
  const std::filesystem::path path(folder);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: no such folder", folder));
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.config_ = load_model_config(path / "config.json");
  const ShardIndex index = load_index(folder);
  checkpoint.map_shards(index.files, pool);
  checkpoint.index_names();
  if (!index.tensors.empty()) checkpoint.check_against_index(index.tensors);
  check_coverage(expected_tensors(checkpoint.config_), checkpoint.by_name_, folder);
  checkpoint.advise_tables();
  return checkpoint;
}

TensorView Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    throw Error(
        ErrorCode::kNotFound, fmt::format("{}: has no tensor {}", folder_, Json(name).dump())
    );
  }
  const TensorRef& tensor = *found->second;
  return {tensor.dtype, tensor.shape, tensor.bytes};
}

int64_t Checkpoint::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, tensor] : by_name_)
    sum += tensor->bytes.size();
  return static_cast<int64_t>(sum);
}

/// Maps and parses every shard, each on its own thread; the first shard's error wins.
void Checkpoint::map_shards(const std::vector<std::string>& files, ThreadPool& pool) {
  shards_.resize(files.size());
  std::vector<std::exception_ptr> errors(files.size());
  pool.parallel_for(static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      try {
        Shard& shard = shards_[i];
        shard.path = std::filesystem::path(folder_) / files[i];
        shard.file = MappedFile::open(shard.path);
        shard.tensors = parse_safetensors(shard.file.bytes(), shard.path);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void Checkpoint::index_names() {
  std::size_t count = 0;
  for (const Shard& shard : shards_)
    count += shard.tensors.size();
  by_name_.reserve(count);
  for (const Shard& shard : shards_) {
    for (const TensorRef& tensor : shard.tensors) {
      if (!by_name_.emplace(without_prefix(tensor.name), &tensor).second) {
        refuse(
            shard.path,
            fmt::format(
                "tensor {} stands in this checkpoint twice (names are "
                "compared without \"model.\")",
                Json(tensor.name).dump()
            )
        );
      }
    }
  }
}

void Checkpoint::check_against_index(const std::vector<std::pair<std::string, std::size_t>>& listed
) const {
  for (const auto& [name, shard_position] : listed) {
    const Shard& shard = shards_[shard_position];
    const auto found = by_name_.find(name);
    const bool here = found != by_name_.end() && !shard.tensors.empty() &&
                      &shard.tensors.front() <= found->second &&
                      found->second <= &shard.tensors.back();
    if (!here) {
      refuse(
          shard.path,
          fmt::format(
              "the index says that this file holds tensor {}, but it does "
              "not",
              Json(name).dump()
          )
      );
    }
  }
  if (listed.size() == by_name_.size()) return;
  TensorsByName unlisted = by_name_;
  for (const auto& [name, shard_position] : listed)
    unlisted.erase(name);
  for (const auto& [name, tensor] : unlisted) {
    refuse(
        folder_,
        fmt::format("a shard holds tensor {}, which the index does not list", Json(name).dump())
    );
  }
}

void Checkpoint::advise_tables() const {
  for (const int64_t layer : config_.engram.engram_layer_ids) {
    for (const char* part : {"weight", "scale"}) {
      advise(find(fmt::format("layers.{}.engram.embed.{}", layer, part)).bytes, Advice::kRandom);
    }
  }
}

}  // namespace di::checkpoint
