// Cases of the n-gram memory: hash, table lookup, gate.
#include <algorithm>

#include "verify/op_case.h"

namespace di::verify {
namespace {

/// Row `layer` of an integer tensor.
std::vector<int64_t> layer_row(const OpCase& test, const std::string& name, int64_t layer) {
  const std::vector<int64_t> all = test.fixture().integers(name);
  const std::ptrdiff_t width = std::ssize(all) / test.dim(name, 0);
  return {all.begin() + layer * width, all.begin() + (layer + 1) * width};
}

/// One layer's lookups [positions, lookups]; every token is its own compressed id's index.
std::vector<int64_t> hash_layer(
    OpCase& test, int64_t layer, const View<int32_t, 1>& token_map, const ops::Rows& rows
) {
  const auto primes = test.place(layer_row(test, "primes", layer));
  const auto ids = test.room<int64_t>(token_map.dim(0), primes.dim(0));
  test.ops().engram_hash(
      test.exec(),
      {.ids = ids,
       .token_map = token_map,
       .multipliers = test.place(layer_row(test, "multipliers", layer)),
       .primes = primes,
       .offsets = test.place(layer_row(test, "offsets", layer)),
       .pad = test.fixture().integers("pad_id").at(0),
       .rows = rows}
  );
  return test.fetch(ids);
}

}  // namespace

void run_engram_hash_case(OpCase& test) {
  std::vector<int32_t> tokens, token_map;
  std::vector<uint8_t> is_image;
  for (const int64_t id : test.fixture().integers("compressed_ids")) {
    tokens.push_back(static_cast<int32_t>(tokens.size()));
    token_map.push_back(static_cast<int32_t>(id));
  }
  for (const int64_t is_text : test.fixture().integers("text_mask"))
    is_image.push_back(is_text == 0 ? 1 : 0);
  const LoneSequence sequence(
      test,
      std::ssize(tokens),
      /*ratio=*/1,
      /*num_blocks=*/1,
      test.place(tokens).data,
      test.place(is_image).data
  );
  const View<int32_t, 1> placed_map = test.place(token_map);

  const int64_t layers = test.dim("multipliers", 0), lookups = test.dim("rows", 2);
  std::vector<int64_t> rows(tokens.size() * static_cast<std::size_t>(layers * lookups));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<int64_t> ids = hash_layer(test, layer, placed_map, sequence.rows());
    for (int64_t position = 0; position < std::ssize(tokens); ++position) {
      const auto from = ids.begin() + position * lookups;
      std::copy_n(from, lookups, rows.begin() + (position * layers + layer) * lookups);
    }
  }
  test.check("rows", rows);
}

void run_engram_lookup_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("rows", 0), lookups = test.dim("rows", 1);
  const int64_t width = test.dim("table", 1);
  const auto y = test.room<bf16>(rows, lookups * width);
  test.ops().engram_lookup(
      test.exec(),
      {.y = y,
       .ids = test.place(file.integers("rows"), rows, lookups),
       .table =
           {.codes = test.place(file.bytes("table")).data,
            .scales = test.place(file.bytes("scales")).data,
            .num_rows = test.dim("table", 0),
            .head_dim = width}}
  );
  test.check("out", y);
}

void run_engram_gate_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("h", 0), streams = test.dim("h", 1), hidden = test.dim("h", 2);
  const auto h = test.place(file.bf16s("h"), rows, streams, hidden);
  const auto gate = test.room<float>(rows, streams);
  std::vector<uint8_t> is_image;
  for (const int64_t is_text : file.integers("text_mask"))
    is_image.push_back(is_text == 0 ? 1 : 0);
  test.ops().engram_gate(
      test.exec(),
      {.h = h,
       .kv = test.place(file.bf16s("kv"), rows, (streams + 1) * hidden),
       .q_weight = test.place(file.bf16s("q_weight"), streams, hidden),
       .k_weight = test.place(file.bf16s("k_weight"), streams, hidden),
       .is_image = test.place(is_image),
       .gate = gate}
  );
  test.check("gate", gate);
  test.check("y", h);
}

}  // namespace di::verify
