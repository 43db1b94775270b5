#include "tensor/dtype.h"

#include <iterator>

namespace di {
namespace {

struct Traits {
  std::string_view name;
  int64_t bytes;
};

// In the order of the enumeration.
constexpr Traits kTraits[] = {
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"I16", 2},
    {"I32", 4},
    {"I64", 8},
    {"F16", 2},
    {"BF16", 2},
    {"F32", 4},
    {"F64", 8},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
};

}  // namespace

int64_t size_of(DType dtype) {
  return kTraits[static_cast<int>(dtype)].bytes;
}

std::string_view name_of(DType dtype) {
  return kTraits[static_cast<int>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kTraits); ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace di
