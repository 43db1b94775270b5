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
    OpCase& test, int64_t layer, const std::vector<int32_t>& token_map, const ops::Rows& rows
) {
  const std::vector<int64_t> multipliers = layer_row(test, "multipliers", layer);
  const std::vector<int64_t> primes = layer_row(test, "primes", layer);
  const std::vector<int64_t> offsets = layer_row(test, "offsets", layer);
  std::vector<int64_t> ids(token_map.size() * primes.size());
  test.ops().engram_hash(
      test.exec(),
      {.ids = View<int64_t, 2>(ids.data(), token_map.size(), primes.size()),
       .token_map = View<const int32_t, 1>(token_map.data(), token_map.size()),
       .multipliers = View<const int64_t, 1>(multipliers.data(), multipliers.size()),
       .primes = View<const int64_t, 1>(primes.data(), primes.size()),
       .offsets = View<const int64_t, 1>(offsets.data(), offsets.size()),
       .pad = test.fixture().integers("pad_id").at(0),
       .rows = rows}
  );
  return ids;
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
  LoneSequence sequence(std::ssize(tokens), /*ratio=*/1, /*num_blocks=*/1);
  sequence.set_tokens(tokens.data(), is_image.data());

  const int64_t layers = test.dim("multipliers", 0), lookups = test.dim("rows", 2);
  std::vector<int64_t> rows(tokens.size() * static_cast<std::size_t>(layers * lookups));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<int64_t> ids = hash_layer(test, layer, token_map, sequence.rows());
    for (int64_t position = 0; position < std::ssize(tokens); ++position) {
      const auto from = ids.begin() + position * lookups;
      std::copy_n(from, lookups, rows.begin() + (position * layers + layer) * lookups);
    }
  }
  test.check("rows", rows);
}

void run_engram_lookup_case(OpCase& test) {
  const std::vector<uint8_t> table = test.fixture().bytes("table");
  const std::vector<uint8_t> scales = test.fixture().bytes("scales");
  const std::vector<int64_t> ids = test.fixture().integers("rows");
  const int64_t rows = test.dim("rows", 0), lookups = test.dim("rows", 1);
  const int64_t width = test.dim("table", 1);
  std::vector<bf16> y(static_cast<std::size_t>(rows * lookups * width));
  test.ops().engram_lookup(
      test.exec(),
      {.y = View<bf16, 2>(y.data(), rows, lookups * width),
       .ids = View<const int64_t, 2>(ids.data(), rows, lookups),
       .table = {table.data(), scales.data(), test.dim("table", 0), width}}
  );
  test.check("out", y);
}

void run_engram_gate_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("h", 0), streams = test.dim("h", 1), hidden = test.dim("h", 2);
  std::vector<bf16> h = file.bf16s("h");
  const std::vector<bf16> kv = file.bf16s("kv");
  const std::vector<bf16> q = file.bf16s("q_weight"), k = file.bf16s("k_weight");
  std::vector<uint8_t> is_image;
  for (const int64_t is_text : file.integers("text_mask"))
    is_image.push_back(is_text == 0 ? 1 : 0);
  std::vector<float> gate(static_cast<std::size_t>(rows * streams));
  test.ops().engram_gate(
      test.exec(),
      {.h = View<bf16, 3>(h.data(), rows, streams, hidden),
       .kv = View<const bf16, 2>(kv.data(), rows, (streams + 1) * hidden),
       .q_weight = View<const bf16, 2>(q.data(), streams, hidden),
       .k_weight = View<const bf16, 2>(k.data(), streams, hidden),
       .is_image = View<const uint8_t, 1>(is_image.data(), rows),
       .gate = View<float, 2>(gate.data(), rows, streams)}
  );
  test.check("gate", gate);
  test.check("y", h);
}

}  // namespace di::verify
