// The safetensors file: eight bytes of header length, a JSON header, then the tensors' bytes. A
// file from anywhere may be parsed: every size is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace di::checkpoint {

/// One tensor where it lies in its file.
struct TensorRef {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  /// Row-major, little-endian, exactly product(shape) elements. The format promises no alignment:
  /// read elements with memcpy, or check the address.
  std::span<const std::byte> bytes;
};

/// The tensors of a whole file in memory, in the order of their bytes. Throws Error{kInvalidFile}
/// whose message starts with `where` when the file is cut off, its header is no good JSON, a tensor
/// has an unknown type, an impossible shape or a size that contradicts its shape, or the tensors
/// overlap or leave bytes unaccounted for.
std::vector<TensorRef> parse_safetensors(std::span<const std::byte> file, std::string_view where);

/// "F32 [3, 4]", for messages.
std::string described(DType dtype, std::span<const int64_t> shape);

}  // namespace di::checkpoint
