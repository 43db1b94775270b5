#include "checkpoint/index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <unordered_set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/names.h"

namespace di::checkpoint {
namespace {

constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 28;

[[noreturn]] void refuse(std::string_view where, const std::string& why) {
  throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {}", where, why));
}

/// A plain file name: letters, digits and "._-", so that it cannot lead out of the folder.
bool is_shard_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  const auto plain = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return name.size() > kSuffix.size() && name.size() <= 255 && name.front() != '.' &&
         name.ends_with(kSuffix) && std::all_of(name.begin(), name.end(), plain);
}

}  // namespace

ShardIndex parse_index(std::string_view text, std::string_view where) {
  const Json json = Json::parse(text, where, {.max_depth = 8, .reject_duplicate_keys = true});
  const Json* weight_map = json.find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object()) {
    refuse(where, "has no object weight_map, which names the file of each tensor");
  }
  for (const auto& [key, value] : json.as_object()) {
    if (key != "weight_map" && key != "metadata") {
      refuse(where, fmt::format("unknown key {}", Json(key).dump()));
    }
  }
  std::map<std::string, std::size_t, std::less<>> positions;
  for (const auto& [name, file] : weight_map->as_object()) {
    if (!file.is_string() || !is_shard_name(file.as_string())) {
      refuse(
          where,
          fmt::format(
              "tensor {} lies in {}, expected the name of a .safetensors file in "
              "the same folder",
              Json(name).dump(),
              file.dump()
          )
      );
    }
    positions.emplace(file.as_string(), 0);
  }
  ShardIndex index;
  for (auto& [file, position] : positions) {
    position = index.files.size();
    index.files.push_back(file);
  }
  std::unordered_set<std::string_view> names;
  for (const auto& [name, file] : weight_map->as_object()) {
    const std::string_view plain = without_prefix(name);
    if (!names.insert(plain).second) {
      refuse(
          where,
          fmt::format("tensor {} stands twice, with and without \"model.\"", Json(plain).dump())
      );
    }
    index.tensors.emplace_back(plain, positions.find(file.as_string())->second);
  }
  return index;
}

ShardIndex load_index(const std::string& folder) {
  const std::filesystem::path path(folder);
  const std::string index = path / kIndexFile;
  std::error_code ignored;
  if (std::filesystem::exists(index, ignored)) {
    return parse_index(read_text_file(index, kMaxIndexBytes), index);
  }
  if (std::filesystem::exists(path / kSingleFile, ignored)) return {{std::string(kSingleFile)}, {}};
  throw Error(
      ErrorCode::kNotFound,
      fmt::format(
          "{}: holds neither {} nor {}; is this the folder of a model?",
          folder,
          kIndexFile,
          kSingleFile
      )
  );
}

}  // namespace di::checkpoint
