// Any text as an index: parsed or refused with di::Error. No accepted file name leads elsewhere.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const di::checkpoint::ShardIndex index = di::checkpoint::parse_index(text, "fuzz");
    for (const std::string& file : index.files)
      DI_CHECK(file.find('/') == std::string::npos, "a shard must lie in its folder");
    for (const auto& [name, shard] : index.tensors)
      DI_CHECK(shard < index.files.size(), "a tensor must lie in a listed shard");
  } catch (const di::Error&) {
    return 0;
  }
  return 0;
}
