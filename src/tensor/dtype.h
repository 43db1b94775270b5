// Element types of tensors on disk, named as the safetensors format names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace di {

enum class DType { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBf16, kF32, kF64, kF8E4M3, kF8E8M0 };

/// Bytes of one element.
int64_t size_of(DType dtype);

/// "BF16", "F8_E4M3", …
std::string_view name_of(DType dtype);

/// The type called `name`, or nothing.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace di
