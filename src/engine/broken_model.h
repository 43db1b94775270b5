// A model that yields numbers which are none, for the tests of this room.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/json.h"

namespace di::engine::testing {

/// A copy of the default model in which the embedding of one token is not a number.
class BrokenModel {
 public:
  explicit BrokenModel(int32_t token)
      : folder_(
            std::filesystem::temp_directory_path() /
            ("deepinfer_nan_" + std::to_string(::getpid()) + "_" + std::to_string(token))
        ) {
    namespace fs = std::filesystem;
    fs::copy(DI_SEEDLING, folder_, fs::copy_options::recursive);
    for (const auto& file : fs::directory_iterator(folder_)) {
      fs::permissions(file.path(), fs::perms::owner_all, fs::perm_options::add);
      if (file.path().extension() == ".safetensors") poison(file.path(), token);
    }
  }
  ~BrokenModel() { std::filesystem::remove_all(folder_); }
  BrokenModel(const BrokenModel&) = delete;

  std::string folder() const { return folder_.string(); }

 private:
  /// Writes NaN over one row of the bf16 embedding, when this file holds it.
  static void poison(const std::filesystem::path& path, int32_t token) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes = 0;
    file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
    std::string header(header_bytes, ' ');
    file.read(header.data(), static_cast<std::streamsize>(header.size()));
    const Json tensors = Json::parse(header, path.string());
    const Json* embedding = tensors.find("embed.weight");
    if (embedding == nullptr) return;
    const int64_t width = embedding->at("shape").as_array()[1].as_integer();
    const int64_t begin = embedding->at("data_offsets").as_array()[0].as_integer();
    const std::vector<uint16_t> row(static_cast<std::size_t>(width), 0x7FC0);
    file.seekp(static_cast<std::streamoff>(8 + header_bytes) + begin + token * width * 2);
    file.write(reinterpret_cast<const char*>(row.data()), width * 2);
  }

  std::filesystem::path folder_;
};

}  // namespace di::engine::testing
