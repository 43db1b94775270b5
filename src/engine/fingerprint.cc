// A model's fingerprint: enough to notice that a record was made with other weights, without
// reading all of them.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "engine/record.h"
#include "engine/record_tokens.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEdgeBytes = std::size_t{64} << 10;

bool counts(const fs::path& path) {
  return path.extension() == ".safetensors" || path.filename() == "config.json" ||
         path.filename() == "tokenizer.json";
}

}  // namespace

std::string model_name(const std::string& folder) {
  return fs::path(folder + "/").parent_path().filename().string();
}

std::string model_fingerprint(const std::string& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (counts(entry.path())) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string parts;
  for (const fs::path& path : paths) {
    const MappedFile file = MappedFile::open(path.string(), MappedFile::Access::kRandom);
    const std::span<const std::byte> bytes = file.bytes();
    const std::size_t edge = std::min(kEdgeBytes, bytes.size());
    parts += fmt::format(
        "{} {} {} {}\n",
        path.filename().string(),
        bytes.size(),
        sha256_hex(bytes.first(edge)),
        sha256_hex(bytes.last(edge))
    );
  }
  return hash_of(parts);
}

}  // namespace di::engine
