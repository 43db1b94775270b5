#include "verify/fixture.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"

namespace di::verify {
namespace {

template <class From, class To>
std::vector<To> widen(const checkpoint::TensorRef& tensor) {
  std::vector<To> result(tensor.bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < result.size(); ++i) {
    From value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(From), sizeof(From));
    if constexpr (std::is_same_v<From, bf16>) {
      result[i] = to_float(value);
    } else {
      result[i] = static_cast<To>(value);
    }
  }
  return result;
}

[[noreturn]] void wrong_type(const checkpoint::TensorRef& tensor, const char* expected) {
  throw Error(
      ErrorCode::kInvalidFile,
      fmt::format(
          "fixture tensor {} is {}, expected {}", tensor.name, name_of(tensor.dtype), expected
      )
  );
}

}  // namespace

Fixture::Fixture(const std::string& path) : path_(path), file_(MappedFile::open(path)) {
  for (checkpoint::TensorRef& tensor : checkpoint::parse_safetensors(file_.bytes(), path)) {
    const std::string name = tensor.name;
    tensors_.emplace(name, std::move(tensor));
  }
}

const checkpoint::TensorRef& Fixture::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: no tensor called {}", path_, name));
  }
  return found->second;
}

std::vector<std::string> Fixture::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_)
    names.push_back(name);
  return names;
}

bool Fixture::is_float(const std::string& name) const {
  const DType dtype = find(name).dtype;
  return dtype == DType::kF32 || dtype == DType::kBf16;
}

std::vector<float> Fixture::floats(const std::string& name) const {
  const checkpoint::TensorRef& tensor = find(name);
  if (tensor.dtype == DType::kF32) return widen<float, float>(tensor);
  if (tensor.dtype == DType::kBf16) return widen<bf16, float>(tensor);
  wrong_type(tensor, "F32 or BF16");
}

std::vector<bf16> Fixture::bf16s(const std::string& name) const {
  std::vector<bf16> result;
  for (const float value : floats(name))
    result.push_back(to_bf16(value));
  return result;
}

std::vector<int64_t> Fixture::integers(const std::string& name) const {
  const checkpoint::TensorRef& tensor = find(name);
  switch (tensor.dtype) {
    case DType::kI64: return widen<int64_t, int64_t>(tensor);
    case DType::kI32: return widen<int32_t, int64_t>(tensor);
    case DType::kI16: return widen<int16_t, int64_t>(tensor);
    case DType::kI8: return widen<int8_t, int64_t>(tensor);
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E8M0: return widen<uint8_t, int64_t>(tensor);
    default: wrong_type(tensor, "an integer type");
  }
}

std::vector<uint8_t> Fixture::bytes(const std::string& name) const {
  const checkpoint::TensorRef& tensor = find(name);
  std::vector<uint8_t> result(tensor.bytes.size());
  std::memcpy(result.data(), tensor.bytes.data(), result.size());
  return result;
}

}  // namespace di::verify
