#include "verify/op_case.h"

#include <algorithm>

#include "base/math.h"
#include "cache/layout.h"

namespace di::verify {
namespace {

template <class T>
std::vector<int64_t> widened(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

void OpCase::copy_in(void* to, const void* from, int64_t bytes) const {
  ops_.memory().copy(to, from, bytes, exec_.stream);
  ops_.memory().wait(exec_.stream);
}

ops::Weight OpCase::pack(const ops::Weight& raw, int64_t scale_bytes) {
  ops::Weight placed = raw;
  const int64_t bytes = ops_.packed_bytes(raw.format, raw.rows, raw.cols);
  if (bytes > 0) {
    auto* packed = exec_.scratch.take<std::byte>(bytes);
    ops_.memory().wait(exec_.stream);  // for ops whose scratch this was
    ops_.pack(raw, {0, raw.rows}, packed);
    return {raw.format, raw.rows, raw.cols, packed, nullptr};
  }
  const int64_t data_bytes = ops::data_bytes(raw.format, raw.rows, raw.cols);
  auto* data = exec_.scratch.take<std::byte>(data_bytes);
  copy_in(data, raw.data, data_bytes);
  placed.data = data;
  if (raw.scales == nullptr) return placed;
  auto* scales = exec_.scratch.take<uint8_t>(scale_bytes);
  copy_in(scales, raw.scales, scale_bytes);
  placed.scales = scales;
  return placed;
}

ops::Weight OpCase::weight(
    ops::WeightFormat format, const std::string& name, const std::string& scales
) {
  const int64_t values_a_column = format == ops::WeightFormat::kFp4 ? 2 : 1;
  const std::vector<uint8_t> data = fixture_.bytes(name);
  const std::vector<uint8_t> scale =
      scales.empty() ? std::vector<uint8_t>{} : fixture_.bytes(scales);
  return pack(
      {format,
       dim(name, 0),
       dim(name, 1) * values_a_column,
       reinterpret_cast<const std::byte*>(data.data()),
       scales.empty() ? nullptr : scale.data()},
      std::ssize(scale)
  );
}

ops::Weight OpCase::weight(const std::vector<float>& values, int64_t rows, int64_t cols) {
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  return pack({ops::WeightFormat::kF32, rows, cols, data, nullptr}, 0);
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

LoneSequence::LoneSequence(
    OpCase& test,
    int64_t count,
    int64_t ratio,
    int64_t num_blocks,
    const int32_t* tokens,
    const uint8_t* is_image
) {
  for (int64_t block = num_blocks; block > 0; --block)
    block_table_.push_back(static_cast<int32_t>(block - 1));
  std::vector<int64_t> positions;
  std::vector<ops::NewEntry> entries;
  for (int64_t position = 0; position < count; ++position) {
    positions.push_back(position);
    if ((position + 1) % ratio == 0) entries.push_back({position, 0, position / ratio});
  }
  const std::vector<ops::SequenceRows> sequence = {
      {.num_rows = count,
       .block_table = test.place(block_table_).data,
       .tokens = tokens,
       .is_image = is_image}};
  rows_ = {
      .sequences = std::span(test.place(sequence).data, 1),
      .sequence_of = test.place(std::vector<int32_t>(positions.size(), 0)),
      .positions = test.place(positions),
      .max_length = count};
  entries_ = std::span(test.place(entries).data, entries.size());
}

PagedEntries::PagedEntries(
    OpCase& test, int64_t count, int64_t per_block, int64_t entry_bytes, int64_t record_bytes
)
    : num_blocks_(std::max<int64_t>(1, ceil_div(count, per_block))),
      view_{
          test.room<std::byte>(num_blocks_ * per_block * entry_bytes).data,
          per_block * entry_bytes,
          per_block,
          record_bytes} {}

PagedEntries PagedEntries::index_keys(OpCase& test, int64_t count, int64_t ratio, int64_t dim) {
  return PagedEntries(test, count, cache::kBlockTokens / ratio, dim / 2 + dim / 32, dim / 2);
}

ops::PagedView PagedEntries::fetch(OpCase& test) {
  fetched_ = test.fetch(View<std::byte, 1>(view_.base, num_blocks_ * view_.block_stride));
  ops::PagedView view = view_;
  view.base = fetched_.data();
  return view;
}

}  // namespace di::verify
