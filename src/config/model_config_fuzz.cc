// Any text as config.json: parsed or refused with di::Error, nothing else. What is accepted must
// keep its promises: roles of every layer are found.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "config/layer_role.h"
#include "config/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const di::ModelConfig config = di::parse_model_config(text, "fuzz");
    di::layer_roles(config);
  } catch (const di::Error&) {
    return 0;
  }
  return 0;
}
