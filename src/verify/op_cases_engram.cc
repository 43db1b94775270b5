// Cases of the n-gram memory: hash, table lookup, gate.
#include "model/engram_hash.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

/// Row `layer` of an integer tensor.
std::vector<int64_t> layer_row(const OpCase& test, const std::string& name, int64_t layer) {
  const std::vector<int64_t> all = test.fixture().integers(name);
  const std::ptrdiff_t width = std::ssize(all) / test.dim(name, 0);
  return {all.begin() + layer * width, all.begin() + (layer + 1) * width};
}

}  // namespace

void run_engram_hash_case(OpCase& test) {
  const std::vector<int64_t> ids = test.fixture().integers("compressed_ids");
  const std::vector<int64_t> is_text = test.fixture().integers("text_mask");
  const int64_t pad = test.fixture().integers("pad_id").at(0);
  const int64_t layers = test.dim("multipliers", 0);
  const auto lookups = static_cast<std::size_t>(test.dim("rows", 2));
  std::vector<model::EngramHash> hashes;
  for (int64_t layer = 0; layer < layers; ++layer) {
    hashes.push_back(
        {layer_row(test, "multipliers", layer),
         layer_row(test, "primes", layer),
         layer_row(test, "offsets", layer)}
    );
  }
  std::vector<int32_t> newest_first;
  std::vector<int64_t> rows;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    const auto id = static_cast<int32_t>(ids[position]);
    newest_first.insert(newest_first.begin(), is_text[position] != 0 ? id : model::kDeadToken);
    for (const model::EngramHash& hash : hashes) {
      rows.resize(rows.size() + lookups);
      hash.rows(newest_first, pad, rows.data() + rows.size() - lookups);
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
