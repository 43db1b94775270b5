// The forward pass, layer by layer. Source: specification section 4.1.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "model/activations.h"

namespace di::model {
namespace {

/// First position whose rows pass through the decoder layers in full.
int64_t replay_begin(const Replay& replay, int64_t prompt_length) {
  if (replay.mode == Replay::Mode::kOff) return 0;
  return std::max<int64_t>(0, prompt_length - replay.keep);
}

RowSet all_rows(const Step& step) {
  RowSet rows;
  const bool any_image =
      std::any_of(step.sequences.begin(), step.sequences.end(), [](const SequenceInput& input) {
        return !input.is_image.empty();
      });
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceInput& input = step.sequences[s];
    const int64_t count = std::ssize(input.tokens);
    rows.sequences.push_back(
        {.first_row = rows.count(),
         .num_rows = count,
         .start = input.start,
         .slot = input.slot,
         .block_table = input.block_table,
         .window_begin = 0}
    );
    for (int64_t i = 0; i < count; ++i) {
      rows.sequence_of.push_back(static_cast<int32_t>(s));
      rows.positions.push_back(input.start + i);
      if (any_image) {
        rows.is_image.push_back(
            input.is_image.empty() ? uint8_t{0} : input.is_image[static_cast<std::size_t>(i)]
        );
      }
    }
  }
  return rows;
}

/// The rows at or after each sequence's replay border, with windows that end there; `sources` gets
/// the index that each kept row had.
RowSet rows_after_border(const Pass& pass, const RowSet& rows, std::vector<int64_t>& sources) {
  const bool compact = pass.options.replay.mode == Replay::Mode::kCompact;
  RowSet kept;
  for (std::size_t s = 0; s < rows.sequences.size(); ++s) {
    ops::SequenceRows sequence = rows.sequences[s];
    const int64_t begin = replay_begin(pass.options.replay, pass.step.sequences[s].prompt_length);
    const int64_t skipped =
        compact ? std::clamp<int64_t>(begin - sequence.start, 0, sequence.num_rows) : 0;
    const int64_t first_source = sequence.first_row + skipped;
    sequence.first_row = kept.count();
    sequence.num_rows -= skipped;
    sequence.start += skipped;
    sequence.window_begin = begin;
    kept.sequences.push_back(sequence);
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const auto source = static_cast<std::size_t>(first_source + i);
      sources.push_back(first_source + i);
      kept.sequence_of.push_back(rows.sequence_of[source]);
      kept.positions.push_back(rows.positions[source]);
      if (!rows.is_image.empty()) kept.is_image.push_back(rows.is_image[source]);
    }
  }
  return kept;
}

/// Keeps the rows `sources` of a tensor, in place: kept rows only move towards the front.
template <class T, int Rank>
void keep_rows(View<T, Rank>& tensor, const std::vector<int64_t>& sources) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const T* source = tensor.row(sources[i]);
    if (source != tensor.row(static_cast<int64_t>(i))) {
      std::copy_n(source, tensor.stride(), tensor.row(static_cast<int64_t>(i)));
    }
  }
  tensor.dims[0] = std::ssize(sources);
}

/// At the border of encoder and decoder: from here on only the kept rows are computed.
void enter_decoder(const Pass& pass, View<bf16, 2>& x, Activations& act) {
  note_finite(pass, act);
  std::vector<int64_t> sources;
  act.rows = rows_after_border(pass, act.rows, sources);
  keep_rows(x, sources);
  keep_rows(act.h, sources);
  keep_rows(act.a, sources);
  keep_rows(act.mix.pre, sources);
  keep_rows(act.mix.post, sources);
  keep_rows(act.mix.comb, sources);
  for (int64_t* rows : {act.h_next.dims, act.selected.dims, act.candidates.dims, act.taps.dims}) {
    *rows = act.rows.count();
  }
}

void attention_site(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const LayerWeights& layer = pass.layer(l);
  mix_streams(pass, layer.hc_attn, act);
  View<bf16, 2> x = collapse_and_norm(pass, layer.attn_norm, act);
  if (pass.role(l).is_kv_source) compress(pass, l, x, act);
  const bool at_border = l == first_decoder_layer(pass.model.config);
  if (at_border && pass.options.replay.mode != Replay::Mode::kOff) enter_decoder(pass, x, act);
  if (act.rows.count() == 0) return;
  expand(pass, attention(pass, l, x, act), act);
  observe(pass.options.observer, "h_mid", l, act.h);
}

void expert_site(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const LayerWeights& layer = pass.layer(l);
  mix_streams(pass, layer.hc_ffn, act);
  const View<bf16, 2> x = collapse_and_norm(pass, layer.ffn_norm, act);
  expand(pass, mixture_of_experts(pass, l, x, act), act);
}

void run_layer(const Pass& pass, int64_t l, Activations& act) {
  if (pass.role(l).engram >= 0) engram(pass, l, act);
  observe(pass.options.observer, "h_in", l, act.h);
  tap(pass, l, act);
  attention_site(pass, l, act);
  if (act.rows.count() == 0) return;
  expert_site(pass, l, act);
  observe(pass.options.observer, "h_out", l, act.h);
  observe(pass.options.observer, "pre_out", l, act.a);
}

void check_logits_survive_replay(const Step& step, const Replay& replay) {
  if (replay.mode != Replay::Mode::kCompact) return;
  for (const SequenceInput& input : step.sequences) {
    const int64_t begin = replay_begin(replay, input.prompt_length);
    const int64_t end = input.start + std::ssize(input.tokens);
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

}  // namespace

std::vector<ops::NewEntry> new_entries(const RowSet& rows, int64_t ratio) {
  std::vector<ops::NewEntry> entries;
  for (std::size_t s = 0; s < rows.sequences.size(); ++s) {
    const ops::SequenceRows& sequence = rows.sequences[s];
    const int64_t end = (sequence.start + sequence.num_rows) / ratio;
    for (int64_t j = sequence.start / ratio; j < end; ++j) {
      const int64_t last_token = (j + 1) * ratio - 1;
      entries.push_back(
          {.row = sequence.first_row + last_token - sequence.start,
           .sequence = static_cast<int64_t>(s),
           .j = j}
      );
    }
  }
  return entries;
}

StepOutput forward(
    const Model& model,
    const Step& step,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
) {
  check_logits_survive_replay(step, options.replay);
  const Arena::Scope scope(exec.scratch);
  const Pass pass{model, step, cache, ops, exec, options};
  Activations act;
  act.rows = all_rows(step);
  act.finite.assign(step.sequences.size(), 1);
  embed(pass, act);
  for (int64_t l = 0; l < model.config.num_hidden_layers && act.rows.count() > 0; ++l) {
    run_layer(pass, l, act);
  }
  observe(pass.options.observer, "main_hidden", -1, act.taps);
  if (act.rows.count() == 0) return {.logits = {}, .finite = std::move(act.finite)};
  note_finite(pass, act);
  return {.logits = logits(pass, act), .finite = std::move(act.finite)};
}

}  // namespace di::model
