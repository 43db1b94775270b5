// model.safetensors.index.json: which file of the folder holds which tensor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace di::checkpoint {

/// The shards of a checkpoint and, for each tensor, the position of its shard.
struct ShardIndex {
  std::vector<std::string> files;                            ///< names inside the folder, ascending
  std::vector<std::pair<std::string, std::size_t>> tensors;  ///< names without "model."
};

/// Reads the index's text. Throws Error{kInvalidFile} whose message starts with `where` for
/// anything but the documented form, for a file name that could leave the folder, and for a tensor
/// that stands in it twice.
ShardIndex parse_index(std::string_view text, std::string_view where);

/// The shards of a folder: those of its index, or the single file model.safetensors with no tensor
/// listed. Throws Error{kNotFound} when the folder has neither.
ShardIndex load_index(const std::string& folder);

}  // namespace di::checkpoint
