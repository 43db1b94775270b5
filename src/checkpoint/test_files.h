// Test helper: folders and safetensors files made on the spot, good ones and broken ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <stdlib.h>

#include "base/mapped_file.h"

namespace di::checkpoint {

/// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_; }
  std::string file(std::string_view name) const { return path_ / name; }
  void write(std::string_view name, std::string_view content) const {
    std::ofstream(file(name), std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

/// Header length, header, data; `stated_length` overrides the true length.
inline std::string safetensors_bytes(
    std::string_view header, std::string_view data, int64_t stated_length = -1
) {
  const auto length = stated_length >= 0 ? static_cast<uint64_t>(stated_length) : header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

/// The bytes of `text`, which must outlive them.
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace di::checkpoint
