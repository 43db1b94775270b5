#include "model/placed_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

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

/// The size that a set is filled up to: that of a recorded step, or its own.
RowSetSize size_of(const RowSet& rows, const PlaceOptions& options) {
  RowSetSize size = rows.size();
  if (options.padded_rows > 0) {
    size.rows = options.padded_rows;
    size.sequences = options.padded_sequences > 0 ? options.padded_sequences : options.padded_rows;
  }
  size.most_rows = std::max(size.most_rows, options.most_rows);
  size.max_length = std::max(size.max_length, options.max_length);
  return size;
}

/// Up to `count` rows; a recorded step has no rows without logits.
void pad_logit_rows(const Step& step, int64_t count, std::vector<int64_t>& rows) {
  int64_t own = 0;
  for (const SequenceInput& input : step.sequences)
    own += input.num_rows();
  DI_CHECK(std::ssize(rows) == own, "all rows of a step that is filled up have logits");
  for (int64_t row = own; row < count; ++row)
    rows.push_back(row);
}

void check_draft(const Model& model, const DraftStep& step) {
  if (!model.weights.draft)
    throw Error(ErrorCode::kInvalidArgument, "this model was loaded without its drafter");
  if (step.length >= 1 && step.length <= cache::kMostDrafts) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "drafts of {} tokens are asked for, 1 to {} are possible", step.length, cache::kMostDrafts
      )
  );
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

PlacedStep::PlacedStep(
    const Model& model, const Step& step, const PlaceOptions& options, ops::Exec& exec
)
    : rows(all_rows(step)) {
  check_logits_survive_replay(step, options.replay);
  const std::vector<int64_t> ratios = entry_ratios(model);
  rows.list_entries(ratios);
  if (options.padded_rows > 0) rows.pad(size_of(rows, options));
  if (options.replay.mode != Replay::Mode::kOff) {
    border = first_decoder_layer(model.config);
    kept = rows_after_border(step, options.replay, rows, planned_sources_);
    kept->list_entries(ratios);
  }
  planned_given_ = place_embeddings(step, rows, model.config.hidden_size, exec);
  planned_logit_rows_ = list_logit_rows(step, kept ? *kept : rows);
  if (options.padded_rows > 0) pad_logit_rows(step, options.padded_rows, planned_logit_rows_);
  place(options, exec);
}

PlacedStep::PlacedStep(
    const Model& model, const DraftStep& step, const PlaceOptions& options, ops::Exec& exec
)
    : rows(draft_rows(step, options.replay, options.padded_sequences)), block(step.length) {
  check_draft(model, step);
  const bf16* noise = model.weights.embed.row(model.config.draft.dspark_noise_token_id);
  planned_given_.assign(static_cast<std::size_t>(rows.count()), noise);
  for (const ops::SequenceRows& sequence : rows.sequences)
    planned_given_[static_cast<std::size_t>(sequence.first_row)] = nullptr;
  for (int64_t i = 0; i < step.length; ++i) {
    for (const ops::SequenceRows& sequence : rows.sequences)
      planned_logit_rows_.push_back(sequence.first_row + i);
  }
  place(options, exec);
}

void PlacedStep::place(const PlaceOptions& options, ops::Exec& exec) {
  using ops::Placer;
  planned_finite_.assign(rows.sequences.size(), 1);
  const int64_t capacity = rows.placed_bytes() + (kept ? kept->placed_bytes() : 0) +
                           Placer::bytes_of<int64_t>(std::ssize(planned_sources_)) +
                           Placer::bytes_of<const bf16*>(std::ssize(planned_given_)) +
                           Placer::bytes_of<int64_t>(std::ssize(planned_logit_rows_)) +
                           Placer::bytes_of<uint8_t>(std::ssize(planned_finite_));
  Placer placer(exec, capacity, capacity <= kStagingBytes ? options.staging : nullptr);
  const RowSetSize size = size_of(rows, options);
  rows.place(placer, size);
  if (kept) kept->place(placer, size);
  kept_sources = placer.place(planned_sources_);
  given = placer.place(planned_given_);
  logit_rows = placer.place(planned_logit_rows_);
  finite = placer.place(planned_finite_);
  placer.flush();
}

}  // namespace di::model
