#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "base/math.h"

namespace di::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 8;

[[noreturn]] void refuse(std::string_view where, const std::string& why) {
  throw Error(ErrorCode::kInvalidFile, fmt::format("{}: {}", where, why));
}

/// The header's text, after its length was checked against the file.
std::string_view header_text(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    refuse(
        where,
        fmt::format(
            "holds {} bytes, a safetensors file starts with {} bytes of header "
            "length; was the download cut off?",
            file.size(),
            kLengthBytes
        )
    );
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    refuse(
        where,
        fmt::format(
            "states a header of {} bytes, at most {} are legal; is this a "
            "safetensors file?",
            length,
            kMaxHeaderBytes
        )
    );
  }
  if (length > file.size() - kLengthBytes) {
    refuse(
        where,
        fmt::format(
            "states a header of {} bytes but holds only {} after the length; was "
            "the download cut off?",
            length,
            file.size() - kLengthBytes
        )
    );
  }
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

/// Reads the header's entry of one tensor; the name only serves messages.
class EntryReader {
 public:
  EntryReader(std::string_view where, std::string_view name, std::span<const std::byte> data)
      : where_(where), name_(name), data_(data) {}

  TensorRef read(const Json& entry) const {
    const bool complete = entry.is_object() && entry.as_object().size() == 3;
    const Json* dtype = entry.find("dtype");
    const Json* shape = entry.find("shape");
    const Json* offsets = entry.find("data_offsets");
    if (!complete || dtype == nullptr || shape == nullptr || offsets == nullptr) {
      fail("its entry must hold exactly dtype, shape and data_offsets");
    }
    TensorRef tensor{{}, read_dtype(*dtype), read_shape(*shape), {}};
    tensor.bytes = read_offsets(*offsets);
    check_size(tensor);
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    refuse(where_, fmt::format("tensor {}: {}", Json(name_).dump(), why));
  }

  DType read_dtype(const Json& json) const {
    if (!json.is_string()) fail(fmt::format("dtype is {}, expected a string", json.kind()));
    const auto dtype = dtype_from_name(json.as_string());
    if (!dtype) fail(fmt::format("unknown dtype {}", json.dump()));
    return *dtype;
  }

  std::vector<int64_t> read_shape(const Json& json) const {
    if (!json.is_array()) fail(fmt::format("shape is {}, expected an array", json.kind()));
    if (json.as_array().size() > kMaxRank) {
      fail(fmt::format("has {} dimensions, at most {} are read", json.as_array().size(), kMaxRank));
    }
    std::vector<int64_t> shape;
    shape.reserve(json.as_array().size());
    for (const Json& size : json.as_array())
      shape.push_back(read_count("shape", size));
    return shape;
  }

  std::span<const std::byte> read_offsets(const Json& json) const {
    if (!json.is_array() || json.as_array().size() != 2) {
      fail("data_offsets must be an array of two integers");
    }
    const auto begin = static_cast<uint64_t>(read_count("data_offsets", json.as_array()[0]));
    const auto end = static_cast<uint64_t>(read_count("data_offsets", json.as_array()[1]));
    if (begin > end || end > data_.size()) {
      fail(fmt::format(
          "its bytes are [{}, {}), but the file holds {} bytes of tensors; was the "
          "download cut off?",
          begin,
          end,
          data_.size()
      ));
    }
    return data_.subspan(begin, end - begin);
  }

  int64_t read_count(std::string_view what, const Json& json) const {
    const bool legal = json.is_integer() && json.as_number() >= 0 && json.as_number() < 0x1p62;
    if (!legal) fail(fmt::format("{} holds {}, expected a size", what, json.dump()));
    return json.as_integer();
  }

  void check_size(const TensorRef& tensor) const {
    std::optional<int64_t> bytes = size_of(tensor.dtype);
    for (const int64_t size : tensor.shape) {
      bytes = checked_mul(*bytes, size);
      if (!bytes) fail(fmt::format("{} has more bytes than 64 bits count", shown(tensor)));
    }
    if (static_cast<uint64_t>(*bytes) != tensor.bytes.size()) {
      fail(fmt::format(
          "{} takes {} bytes, but data_offsets span {}", shown(tensor), *bytes, tensor.bytes.size()
      ));
    }
  }

  static std::string shown(const TensorRef& tensor) {
    return described(tensor.dtype, tensor.shape);
  }

  std::string_view where_;
  std::string_view name_;
  std::span<const std::byte> data_;
};

/// The metadata are a flat map of strings; nothing in them matters here.
void check_metadata(const Json& metadata, std::string_view where) {
  if (!metadata.is_object()) refuse(where, "__metadata__ is no object");
  for (const auto& [key, value] : metadata.as_object()) {
    if (!value.is_string())
      refuse(where, fmt::format("__metadata__ {} is no string", Json(key).dump()));
  }
}

/// Sorts by place and demands that the tensors tile the data without overlap or gap.
void sort_and_check_tiling(
    std::vector<TensorRef>& tensors, std::span<const std::byte> data, std::string_view where
) {
  const auto end_of = [](const TensorRef& t) { return t.bytes.data() + t.bytes.size(); };
  std::sort(tensors.begin(), tensors.end(), [&](const TensorRef& a, const TensorRef& b) {
    return std::pair(a.bytes.data(), end_of(a)) < std::pair(b.bytes.data(), end_of(b));
  });
  const std::byte* expected = data.data();
  for (const TensorRef& tensor : tensors) {
    if (tensor.bytes.data() != expected) {
      const bool overlap = tensor.bytes.data() < expected;
      refuse(
          where,
          fmt::format(
              "tensor {} {} the bytes before it",
              Json(tensor.name).dump(),
              overlap ? "overlaps" : "leaves a gap after"
          )
      );
    }
    expected = end_of(tensor);
  }
  const auto left = data.data() + data.size() - expected;
  if (left != 0) refuse(where, fmt::format("holds {} bytes that belong to no tensor", left));
}

}  // namespace

std::vector<TensorRef> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  const std::string_view text = header_text(file, where);
  if (text.empty() || text.front() != '{') refuse(where, "its header does not start with {");
  Json header = Json::parse(text, where, {.max_depth = 4, .reject_duplicate_keys = true});
  const auto data = file.subspan(kLengthBytes + text.size());

  std::vector<TensorRef> tensors;
  tensors.reserve(header.as_object().size());
  for (auto& [name, entry] : header.as_object()) {
    if (name == "__metadata__") {
      check_metadata(entry, where);
    } else {
      tensors.push_back(EntryReader(where, name, data).read(entry));
      tensors.back().name = std::move(name);
    }
  }
  sort_and_check_tiling(tensors, data, where);
  return tensors;
}

std::string described(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", name_of(dtype), fmt::join(shape, ", "));
}

}  // namespace di::checkpoint
