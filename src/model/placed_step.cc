#include "model/placed_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/place.h"

namespace di::model {
namespace {

void check_logits_survive_replay(const Step& step, const Replay& replay) {
  if (replay.mode != Replay::Mode::kCompact) return;
  for (const SequenceInput& input : step.sequences) {
    const int64_t begin = replay_begin(replay, input.prompt_length);
    const int64_t end = std::ssize(input.tokens);
    const int64_t first_wanted = input.logits == LogitRows::kAll ? input.start : end - 1;
    if (input.logits != LogitRows::kNone && first_wanted < begin) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "logits of position {} are asked for, but compact replay computes positions from {} "
              "on; use replay mode off or mask for prompt log-probabilities",
              first_wanted,
              begin
          )
      );
    }
  }
}

/// The ratios of the layers that own entries, each once.
std::vector<int64_t> entry_ratios(const Model& model) {
  std::vector<int64_t> ratios;
  for (const LayerRole& role : model.roles) {
    if (role.is_kv_source && std::find(ratios.begin(), ratios.end(), role.ratio) == ratios.end())
      ratios.push_back(role.ratio);
  }
  return ratios;
}

/// Rows that want logits, sequence by sequence.
std::vector<int64_t> list_logit_rows(const Step& step, const RowSet& set) {
  std::vector<int64_t> rows;
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const ops::SequenceRows& sequence = set.sequences[s];
    const int64_t end = sequence.first_row + sequence.num_rows;
    const LogitRows wanted = step.sequences[s].logits;
    if (wanted == LogitRows::kLast) rows.push_back(end - 1);
    for (int64_t row = sequence.first_row; row < end && wanted == LogitRows::kAll; ++row)
      rows.push_back(row);
  }
  return rows;
}

/// For each row its own embedding, or nullptr; empty when no row has one.
std::vector<const bf16*> place_embeddings(
    const Step& step, const RowSet& rows, int64_t hidden_size, ops::Exec& exec
) {
  std::vector<const bf16*> given;
  if (rows.is_image.empty()) return given;
  given.resize(static_cast<std::size_t>(rows.count()));
  for (std::size_t s = 0; s < rows.sequences.size(); ++s) {
    for (const RowEmbedding& row : step.sequences[s].embeddings) {
      given[static_cast<std::size_t>(rows.sequences[s].first_row + row.row)] =
          ops::place(exec, std::span(row.value, static_cast<std::size_t>(hidden_size))).data;
    }
  }
  return given;
}

}  // namespace

PlacedStep::PlacedStep(const Model& model, const Step& step, const Replay& replay, ops::Exec& exec)
    : rows(all_rows(step)) {
  check_logits_survive_replay(step, replay);
  const std::vector<int64_t> ratios = entry_ratios(model);
  rows.place(exec, ratios);
  if (replay.mode != Replay::Mode::kOff) {
    border = first_decoder_layer(model.config);
    kept = rows_after_border(step, replay, rows, planned_sources_);
    kept->place(exec, ratios);
    kept_sources = ops::place(exec, planned_sources_);
  }
  planned_given_ = place_embeddings(step, rows, model.config.hidden_size, exec);
  given = ops::place(exec, planned_given_);
  planned_logit_rows_ = list_logit_rows(step, kept ? *kept : rows);
  logit_rows = ops::place(exec, planned_logit_rows_);
  const std::vector<uint8_t> all_finite(step.sequences.size(), 1);
  finite = exec.scratch.array<uint8_t>(all_finite.size());
  exec.scratch.memory().copy(finite.data, all_finite.data(), finite.size(), exec.stream);
}

}  // namespace di::model
