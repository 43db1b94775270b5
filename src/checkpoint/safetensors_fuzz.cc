// Any bytes as a safetensors file: parsed or refused with di::Error. What is accepted lies inside
// the file: every byte of every tensor may be read.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    unsigned sum = 0;
    for (const auto& tensor : di::checkpoint::parse_safetensors({bytes, size}, "fuzz")) {
      for (const std::byte byte : tensor.bytes)
        sum += static_cast<unsigned>(byte);
    }
    volatile unsigned keep = sum;
    static_cast<void>(keep);
  } catch (const di::Error&) {
    return 0;
  }
  return 0;
}
