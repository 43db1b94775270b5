// Engram in front of a layer. Source: specification section 4.3.
#include <vector>

#include "model/activations.h"

namespace di::model {
namespace {

/// Compressed ids of a sequence's history and new tokens, oldest first.
std::vector<int32_t> compressed_ids(const EngramHasher& hasher, const SequenceInput& input) {
  std::vector<int32_t> ids;
  const auto append = [&](std::span<const int32_t> tokens, std::span<const uint8_t> is_image) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ids.push_back(hasher.compress(tokens[i], !is_image.empty() && is_image[i] != 0));
    }
  };
  const auto wanted = static_cast<std::size_t>(hasher.max_ngram_size() - 1);
  const std::size_t skipped = input.history.size() - std::min(wanted, input.history.size());
  append(
      input.history.subspan(skipped),
      input.history_is_image.empty() ? input.history_is_image
                                     : input.history_is_image.subspan(skipped)
  );
  append(input.tokens, input.is_image);
  return ids;
}

/// Table rows of every row of the step [rows, orders · heads].
View<int64_t, 2> lookup_ids(const Pass& pass, int64_t index, const Activations& act) {
  const EngramHasher& hasher = pass.model.engram_hasher;
  const auto ids =
      pass.arena().array<int64_t>(act.rows.count(), pass.model.config.engram.rows_per_token());
  std::vector<int32_t> newest_first;
  for (std::size_t s = 0; s < pass.step.sequences.size(); ++s) {
    const std::vector<int32_t> compressed = compressed_ids(hasher, pass.step.sequences[s]);
    const ops::SequenceRows& sequence = act.rows.sequences[s];
    const std::size_t before = compressed.size() - static_cast<std::size_t>(sequence.num_rows);
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const std::size_t at = before + static_cast<std::size_t>(i);
      newest_first.clear();
      for (std::size_t back = 0; back <= at && std::ssize(newest_first) < hasher.max_ngram_size();
           ++back) {
        newest_first.push_back(compressed[at - back]);
      }
      hasher.rows(index, newest_first, ids.row(sequence.first_row + i));
    }
  }
  return ids;
}

}  // namespace

void engram(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const EngramWeights& weights = *pass.layer(l).engram;
  const View<int64_t, 2> ids = lookup_ids(pass, pass.role(l).engram, act);
  observe(pass.options.observer, "engram_ids", l, ids);

  const auto rows =
      pass.arena().array<bf16>(act.rows.count(), pass.model.config.engram.lookup_size());
  pass.ops.engram_lookup(pass.exec, {.y = rows, .ids = ids, .table = weights.table});
  const View<bf16, 2> kv = linear_q8(pass, quantize(pass, rows), weights.wkv);
  pass.ops.engram_gate(
      pass.exec,
      {.h = act.h,
       .kv = kv,
       .q_weight = weights.q_weight,
       .k_weight = weights.k_weight,
       .is_image = act.rows.image_view(),
       .gate = {}}
  );
}

}  // namespace di::model
