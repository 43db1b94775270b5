// Cases of the compressed caches' readers: the selection of entries, and attention over them.
#include <cmath>

#include <fmt/format.h>

#include "cache/layout.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

/// The quantised queries of an indexer case.
struct IndexQueries {
  explicit IndexQueries(OpCase& test)
      : rows(test.dim("q", 0)), heads(test.dim("q", 1)), dim(test.dim("q", 2)) {
    codes = test.room<uint8_t>(rows, heads, dim / 2);
    scales = test.room<uint8_t>(rows, heads, dim / 32);
    test.ops().quantize_mxfp4(
        test.exec(),
        {.codes = View<uint8_t, 2>(codes.data, rows * heads, dim / 2),
         .scales = View<uint8_t, 2>(scales.data, rows * heads, dim / 32),
         .x = test.place(test.fixture().bf16s("q"), rows * heads, dim)}
    );
    head_weights = test.place(test.fixture().bf16s("head_weights"), rows, heads);
  }

  int64_t rows, heads, dim;
  View<uint8_t, 3> codes, scales;
  View<bf16, 2> head_weights;
};

/// Blocks as the mask over entries that fixtures hold [rows, entries].
std::vector<uint8_t> entry_mask(
    OpCase& test, const View<int32_t, 2>& selected, int64_t block_size, int64_t entries
) {
  std::vector<int32_t> fetched = test.fetch(selected);
  const View<int32_t, 2> blocks(fetched.data(), selected.dim(0), selected.dim(1));
  std::vector<uint8_t> mask(static_cast<std::size_t>(blocks.dim(0) * entries));
  for (int64_t row = 0; row < blocks.dim(0); ++row) {
    for (int64_t i = 0; i < blocks.dim(1) && blocks(row, i) >= 0; ++i) {
      const int64_t begin = blocks(row, i) * block_size;
      const int64_t end = std::min(entries, begin + block_size);
      std::fill_n(mask.begin() + row * entries + begin, end - begin, uint8_t{1});
    }
  }
  return mask;
}

void check_selection(OpCase& test, const IndexQueries& q, int64_t ratio) {
  const std::vector<int64_t> params = test.fixture().integers("params");
  const int64_t topk = params.at(0), blocks = params.at(1), block_size = params.at(2);
  const std::string prefix = fmt::format("r{}.", ratio);
  const int64_t entries = q.rows / ratio;
  const PagedEntries keys = PagedEntries::index_keys(test, entries, ratio, q.dim);
  const LoneSequence step(test, q.rows, ratio, keys.num_blocks());
  std::vector<bf16> k = test.fixture().bf16s("k");
  k.resize(static_cast<std::size_t>(entries * q.dim));
  test.ops().index_key_store(
      test.exec(),
      {.cache = keys.view(),
       .k = test.place(k, entries, q.dim),
       .entries = step.entries(),
       .rows = step.rows()}
  );
  const auto selected = test.room<int32_t>(q.rows, topk);
  const auto candidates = test.room<int32_t>(q.rows, blocks);
  ops::IndexSelect select{
      .selected = selected,
      .candidates_out = candidates,
      .candidates_in = {},
      .q_codes = q.codes,
      .q_scales = q.scales,
      .head_weights = q.head_weights,
      .keys = keys.view(),
      .ratio = ratio,
      .candidate_block_size = block_size,
      .rows = step.rows()};
  test.ops().index_select(test.exec(), select);
  test.check(prefix + "topk", selected);
  test.check(prefix + "candidates", entry_mask(test, candidates, block_size, entries));
  select.candidates_out = {};
  select.candidates_in = candidates;
  test.ops().index_select(test.exec(), select);
  test.check(prefix + "topk_in_candidates", selected);
}

}  // namespace

void run_indexer_case(OpCase& test) {
  const IndexQueries queries(test);
  for (const int64_t ratio : {1, 2})
    check_selection(test, queries, ratio);
  test.note("scores are compared through the selections that they lead to");
}

/// Without a window: the entries are window records laid out as pages of a compressed cache.
void run_sparse_attn_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("q", 0), heads = test.dim("q", 1), dim = test.dim("q", 2);
  const int64_t entries = test.dim("kv", 0);
  std::vector<int32_t> selected;
  for (const int64_t id : file.integers("idx"))
    selected.push_back(static_cast<int32_t>(id));

  const int64_t record_bytes = ops::kv_record_bytes(ops::KvFormat::kFp8, dim);
  const PagedEntries cache(test, entries, cache::kBlockTokens, record_bytes, record_bytes);
  const LoneSequence all(test, entries, /*ratio=*/1, cache.num_blocks());
  test.ops().compressed_store(
      test.exec(),
      {.cache = cache.view(),
       .format = ops::KvFormat::kFp8,
       .kv = test.place(file.bf16s("kv"), entries, dim),
       .entries = all.entries(),
       .rows = all.rows()}
  );
  const auto out = test.room<bf16>(rows, heads, dim);
  const LoneSequence step(test, rows, /*ratio=*/1, cache.num_blocks());
  test.ops().sparse_attention(
      test.exec(),
      {.o = out,
       .q = test.place(file.bf16s("q"), rows, heads, dim),
       .window_records = {},
       .ring = {},
       .window = 0,
       .compressed = cache.view(),
       .format = ops::KvFormat::kFp8,
       .selected = test.place(selected, rows, test.dim("idx", 1)),
       .sink = test.place(file.floats("sink")),
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))),
       .rows = step.rows()}
  );
  test.check("out", out);
}

}  // namespace di::verify
