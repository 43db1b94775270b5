#include "bench/attention_bench.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "bench/synthetic.h"

namespace di::bench {
namespace {

constexpr int64_t kBlockTokens = 128;

/// One sequence whose last rows are a chunk of `rows` rows, after `history` positions.
struct Chunk {
  std::vector<int32_t> table;
  ops::SequenceRows sequence;
  std::vector<int32_t> sequence_of;
  std::vector<int64_t> positions;

  Chunk(int64_t rows, int64_t history)
      : table(static_cast<std::size_t>((history + rows) / kBlockTokens + 1)),
        sequence_of(static_cast<std::size_t>(rows), 0),
        positions(static_cast<std::size_t>(rows)) {
    std::iota(table.begin(), table.end(), 0);
    std::iota(positions.begin(), positions.end(), history);
    sequence.num_rows = rows;
    sequence.start = history;
    sequence.block_table = table.data();
  }
  ops::Rows rows() const {
    const auto count = std::ssize(positions);
    return {
        .sequences = std::span(&sequence, 1),
        .sequence_of = View<const int32_t, 1>(sequence_of.data(), count),
        .positions = View<const int64_t, 1>(positions.data(), count)};
  }
};

/// Window records, or compressed ones, of random rows.
std::vector<uint8_t> synthetic_records(
    OpRunner& runner, ops::KvFormat format, int64_t count, int64_t dim
) {
  const int64_t bytes = ops::kv_record_bytes(format, dim);
  const std::vector<bf16> kv = synthetic_activations(runner.random(), count * dim);
  const View<const bf16, 2> view(kv.data(), count, dim);
  std::vector<uint8_t> records(static_cast<std::size_t>(count * bytes));
  if (format == ops::KvFormat::kFp8) {
    runner.table().window_records(
        runner.exec(), {View<uint8_t, 2>(records.data(), count, bytes), view}
    );
    return records;
  }
  const Chunk chunk(1, count);
  std::vector<ops::NewEntry> entries;
  for (int64_t j = 0; j < count; ++j)
    entries.push_back({.row = 0, .sequence = 0, .j = j});
  runner.table().compressed_store(
      runner.exec(),
      {.cache =
           {.base = reinterpret_cast<std::byte*>(records.data()),
            .block_stride = kBlockTokens * bytes,
            .entries_per_block = kBlockTokens,
            .record_bytes = bytes},
       .format = format,
       .kv = view,
       .entries = entries,
       .rows = chunk.rows()}
  );
  return records;
}

void attention_rows(OpRunner& runner, int64_t rows) {
  constexpr int64_t kHeads = 64, kDim = 512, kWindow = 128, kSelected = 512, kHistory = 4096;
  constexpr int64_t kRing = kWindow + 6;
  const Chunk chunk(rows, kHistory);
  const std::vector<bf16> q = synthetic_activations(runner.random(), rows * kHeads * kDim);
  std::vector<bf16> o(q.size());
  const auto window = synthetic_records(runner, ops::KvFormat::kFp8, rows, kDim);
  auto ring = synthetic_records(runner, ops::KvFormat::kFp8, kRing, kDim);
  auto compressed = synthetic_records(runner, ops::KvFormat::kFp4, kHistory, kDim);
  const std::vector<float> sink(kHeads, 0.5f);
  std::vector<int32_t> selected;
  for (int64_t i = 0; i < rows * kSelected; ++i)
    selected.push_back(static_cast<int32_t>(i % kSelected * (kHistory / kSelected)));
  const int64_t window_bytes = ops::kv_record_bytes(ops::KvFormat::kFp8, kDim);
  const int64_t bytes = ops::kv_record_bytes(ops::KvFormat::kFp4, kDim);
  const ops::SparseAttention op{
      .o = View<bf16, 3>(o.data(), rows, kHeads, kDim),
      .q = View<const bf16, 3>(q.data(), rows, kHeads, kDim),
      .window_records = View<const uint8_t, 2>(window.data(), rows, window_bytes),
      .ring =
          {.base = reinterpret_cast<std::byte*>(ring.data()),
           .slot_stride = kRing * window_bytes,
           .length = kRing,
           .record_bytes = window_bytes},
      .window = kWindow,
      .compressed =
          {.base = reinterpret_cast<std::byte*>(compressed.data()),
           .block_stride = kBlockTokens * bytes,
           .entries_per_block = kBlockTokens,
           .record_bytes = bytes},
      .format = ops::KvFormat::kFp4,
      .selected = View<const int32_t, 2>(selected.data(), rows, kSelected),
      .sink = View<const float, 1>(sink.data(), kHeads),
      .scale = 1.0f / std::sqrt(static_cast<float>(kDim)),
      .rows = chunk.rows()};
  const OpCase what{
      .name = "sparse_attention",
      .shape = fmt::format("{}x{}, {}+{} entries", kHeads, kDim, kWindow, kSelected),
      .rows = rows,
      .bytes = static_cast<double>(rows * (kWindow * window_bytes + kSelected * bytes)),
      .products = static_cast<double>(rows * kHeads * (kWindow + kSelected) * 2 * kDim),
      .peak_share = 0.5};
  runner.measure(what, 1, [&](int64_t) { runner.table().sparse_attention(runner.exec(), op); });
}

void index_rows(OpRunner& runner, int64_t rows, int64_t keys) {
  constexpr int64_t kHeads = 32, kDim = 128, kTopK = 512, kBlocks = 2048, kBlockSize = 8;
  constexpr int64_t kCodes = kDim / 2, kScales = kDim / 32;
  const Chunk chunk(rows, keys);
  const auto quantised = [&](int64_t count) {
    const std::vector<bf16> x = synthetic_activations(runner.random(), count * kDim);
    std::vector<uint8_t> codes(static_cast<std::size_t>(count * kCodes));
    std::vector<uint8_t> scales(static_cast<std::size_t>(count * kScales));
    runner.table().quantize_mxfp4(
        runner.exec(),
        {View<uint8_t, 2>(codes.data(), count, kCodes),
         View<uint8_t, 2>(scales.data(), count, kScales),
         View<const bf16, 2>(x.data(), count, kDim)}
    );
    return std::pair(codes, scales);
  };
  const auto [q_codes, q_scales] = quantised(rows * kHeads);
  std::vector<uint8_t> cache;
  const auto [block_codes, block_scales] = quantised(kBlockTokens);
  for (std::size_t block = 0; block < chunk.table.size(); ++block) {
    cache.insert(cache.end(), block_codes.begin(), block_codes.end());
    cache.insert(cache.end(), block_scales.begin(), block_scales.end());
  }
  const std::vector<bf16> weights = synthetic_activations(runner.random(), rows * kHeads);
  std::vector<int32_t> selected(static_cast<std::size_t>(rows * kTopK));
  std::vector<int32_t> candidates(static_cast<std::size_t>(rows * kBlocks));
  const ops::IndexSelect op{
      .selected = View<int32_t, 2>(selected.data(), rows, kTopK),
      .candidates_out = View<int32_t, 2>(candidates.data(), rows, kBlocks),
      .candidates_in = {},
      .q_codes = View<const uint8_t, 3>(q_codes.data(), rows, kHeads, kCodes),
      .q_scales = View<const uint8_t, 3>(q_scales.data(), rows, kHeads, kScales),
      .head_weights = View<const bf16, 2>(weights.data(), rows, kHeads),
      .keys =
          {.base = reinterpret_cast<std::byte*>(cache.data()),
           .block_stride = kBlockTokens * (kCodes + kScales),
           .entries_per_block = kBlockTokens,
           .record_bytes = kCodes},
      .ratio = 1,
      .candidate_block_size = kBlockSize,
      .rows = chunk.rows()};
  const OpCase what{
      .name = "index_select",
      .shape = fmt::format("{}x{}, {} keys", kHeads, kDim, keys),
      .rows = rows,
      .bytes = static_cast<double>(keys * (kCodes + kScales)),
      .products = static_cast<double>(rows * keys * kHeads * kDim)};
  runner.measure(what, 1, [&](int64_t) { runner.table().index_select(runner.exec(), op); });
}

}  // namespace

void bench_attention(OpRunner& runner) {
  for (const int64_t rows : runner.options().rows) {
    if (runner.wanted("sparse_attention")) attention_rows(runner, rows);
  }
  for (const int64_t rows : runner.options().rows) {
    if (runner.wanted("index_select")) index_rows(runner, rows, int64_t{1} << 16);
  }
}

}  // namespace di::bench
