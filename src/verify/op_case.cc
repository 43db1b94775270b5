#include "verify/op_case.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"
#include "cache/layout.h"

namespace di::verify {
namespace {

template <class T>
std::vector<int64_t> widened(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

ops::Weight OpCase::pack(const ops::Weight& raw) {
  const int64_t bytes = ops_.packed_bytes(raw.format, raw.rows, raw.cols);
  if (bytes == 0) return raw;
  std::vector<uint8_t>& packed = storage_.emplace_back(static_cast<std::size_t>(bytes));
  auto* data = reinterpret_cast<std::byte*>(packed.data());
  ops_.pack(raw, {0, raw.rows}, data);
  return {raw.format, raw.rows, raw.cols, data, nullptr};
}

ops::Weight OpCase::weight(
    ops::WeightFormat format, const std::string& name, const std::string& scales
) {
  const int64_t values_a_column = format == ops::WeightFormat::kFp4 ? 2 : 1;
  const std::vector<uint8_t>& data = storage_.emplace_back(fixture_.bytes(name));
  ops::Weight raw{
      format,
      dim(name, 0),
      dim(name, 1) * values_a_column,
      reinterpret_cast<const std::byte*>(data.data()),
      nullptr};
  if (!scales.empty()) raw.scales = storage_.emplace_back(fixture_.bytes(scales)).data();
  return pack(raw);
}

ops::Weight OpCase::weight(const std::vector<float>& values, int64_t rows, int64_t cols) {
  std::vector<uint8_t>& data = storage_.emplace_back(values.size() * sizeof(float));
  std::memcpy(data.data(), values.data(), data.size());
  return pack(
      {ops::WeightFormat::kF32,
       rows,
       cols,
       reinterpret_cast<const std::byte*>(data.data()),
       nullptr}
  );
}

void OpCase::check(const std::string& name, std::span<const float> ours) {
  if (!fixture_.has(name)) return;
  const std::string kind = report_.name + "." + name;
  const int64_t width = std::max<int64_t>(1, fixture_.shape(name).back());
  report_.add(compare_floats(name, kind, ours, fixture_.floats(name), width, strictness_));
}

void OpCase::check(const std::string& name, std::span<const bf16> ours) {
  std::vector<float> wide;
  for (const bf16 value : ours)
    wide.push_back(to_float(value));
  check(name, wide);
}

void OpCase::check(const std::string& name, std::span<const int64_t> ours) {
  if (!fixture_.has(name)) return;
  const std::string kind = report_.name + "." + name;
  report_.add(compare_integers(name, kind, ours, fixture_.integers(name), strictness_));
}

void OpCase::check(const std::string& name, std::span<const uint8_t> ours) {
  check(name, widened(ours));
}

void OpCase::check(const std::string& name, std::span<const int32_t> ours) {
  check(name, widened(ours));
}

LoneSequence::LoneSequence(int64_t count, int64_t ratio, int64_t num_blocks) {
  for (int64_t block = num_blocks; block > 0; --block)
    block_table_.push_back(static_cast<int32_t>(block - 1));
  sequence_ = {.num_rows = count, .block_table = block_table_.data()};
  for (int64_t position = 0; position < count; ++position) {
    sequence_of_.push_back(0);
    positions_.push_back(position);
    if ((position + 1) % ratio == 0) entries_.push_back({position, 0, position / ratio});
  }
}

ops::Rows LoneSequence::rows() const {
  return {
      std::span(&sequence_, 1),
      View<const int32_t, 1>(sequence_of_.data(), std::ssize(sequence_of_)),
      View<const int64_t, 1>(positions_.data(), std::ssize(positions_)),
      std::ssize(positions_)};
}

PagedEntries::PagedEntries(
    int64_t count, int64_t per_block, int64_t entry_bytes, int64_t record_bytes
)
    : num_blocks_(std::max<int64_t>(1, ceil_div(count, per_block))),
      bytes_(static_cast<std::size_t>(num_blocks_ * per_block * entry_bytes)),
      view_{bytes_.data(), per_block * entry_bytes, per_block, record_bytes} {}

PagedEntries PagedEntries::index_keys(int64_t count, int64_t ratio, int64_t dim) {
  return PagedEntries(count, cache::kBlockTokens / ratio, dim / 2 + dim / 32, dim / 2);
}

}  // namespace di::verify
