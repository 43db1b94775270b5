// A fixture file: named tensors of a safetensors file, widened to what comparisons need.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::verify {

/// An open fixture. Reading a tensor that is not there throws Error{kNotFound}.
class Fixture {
 public:
  explicit Fixture(const std::string& path);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;
  const std::vector<int64_t>& shape(const std::string& name) const { return find(name).shape; }
  bool is_float(const std::string& name) const;  ///< F32, BF16

  std::vector<float> floats(const std::string& name) const;  ///< F32 or BF16, widened
  std::vector<bf16> bf16s(const std::string& name) const;  ///< floats, narrowed (exact in fixtures)
  std::vector<int64_t> integers(const std::string& name) const;  ///< any integer type or 8-bit code
  std::vector<uint8_t> bytes(const std::string& name) const;     ///< the raw bytes

 private:
  const checkpoint::TensorRef& find(const std::string& name) const;

  std::string path_;
  MappedFile file_;
  std::map<std::string, checkpoint::TensorRef> tensors_;
};

}  // namespace di::verify
