// Source: specification section 6.1.
#include "model/draft.h"

#include "base/check.h"
#include "model/activations.h"

namespace di::model {
namespace {

/// What a draft computes, while it is writable.
struct Results {
  View<int32_t, 2> tokens;
  View<float, 2> confidence;
  View<float, 3> logits;
};

/// Row i of the first dimension.
template <class T>
View<T, 1> at(const View<T, 2>& view, int64_t i) {
  return View<T, 1>(view.row(i), view.dim(1));
}
template <class T>
View<T, 2> at(const View<T, 3>& view, int64_t i) {
  return View<T, 2>(view.row(i), view.dim(1), view.dim(2));
}

/// The collapsed streams with room behind them for the embedding of the token before
/// [length, sequences, hidden_size + markov_rank]: what a confidence is made of.
View<bf16, 3> features_of(const Pass& pass, const View<bf16, 2>& x, const Results& results) {
  const auto features = pass.arena().array<bf16>(
      results.tokens.dim(0),
      results.tokens.dim(1),
      x.dim(1) + pass.model.config.draft.dspark_markov_rank
  );
  ops::CopyRows copy = whole(x, View<bf16, 2>(features.data, x.dim(0), x.dim(1)));
  copy.to_stride = features.dim(2) * static_cast<int64_t>(sizeof(bf16));
  pass.ops.copy_rows(pass.exec, copy);
  return features;
}

/// Base logits of all drafts at once, then token by token the bias of the one before.
void choose_tokens(
    const Pass& pass,
    const Activations& act,
    const View<const int32_t, 1>& anchors,
    DraftChooser* chooser,
    const Results& results
) {
  const DraftWeights& weights = *pass.model.weights.draft;
  const View<bf16, 2> x = final_collapse(pass, act);
  const View<bf16, 3> features = features_of(pass, x, results);
  norm(pass, x, weights.norm);
  const int64_t rows = x.dim(0);
  const View<float, 2> base(results.logits.data, rows, results.logits.dim(2));
  pass.ops.linear(pass.exec, {.y = {}, .y_f32 = base, .x = x, .w = pass.model.weights.head});
  for (int64_t i = 0; i < results.tokens.dim(0); ++i) {
    const View<int32_t, 1> tokens = at(results.tokens, i);
    pass.ops.markov_round(
        pass.exec,
        {.logits = at(results.logits, i),
         .best = tokens,
         .features = at(features, i),
         .previous = i == 0 ? anchors : at(results.tokens, i - 1),
         .embed = weights.markov_embed,
         .head = weights.markov_head}
    );
    if (chooser != nullptr) chooser->choose(pass.exec, i, at(results.logits, i), tokens);
  }
  pass.ops.linear(
      pass.exec,
      {.y = {},
       .y_f32 = View<float, 2>(results.confidence.data, rows, 1),
       .x = View<bf16, 2>(features.data, rows, features.dim(2)),
       .w = weights.confidence}
  );
}

}  // namespace

DraftOutput run_draft(
    const Model& model,
    const PlacedStep& placed,
    const View<const int32_t, 1>& anchors,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options,
    DraftChooser* chooser
) {
  const auto count = std::ssize(placed.rows.sequences);
  DI_CHECK(placed.block > 0 && anchors.dim(0) == count, "each sequence of a draft has an anchor");
  const Results results{
      exec.scratch.array<int32_t>(placed.block, count),
      exec.scratch.array<float>(placed.block, count),
      exec.scratch.array<float>(placed.block, count, model.config.vocab_size)};
  const Arena::Scope scope(exec.scratch);
  const ForwardOptions pass_options{.replay = options.replay, .observer = options.observer};
  const Pass pass{model, placed, cache, ops, exec, pass_options};
  Activations act;
  act.rows = &placed.rows;
  act.finite = placed.finite;
  embed(pass, act);
  for (int64_t l = model.config.num_hidden_layers; l < model.config.num_layers(); ++l)
    run_layer(pass, l, act);
  observe(pass, "h_out", -1, act.h);
  choose_tokens(pass, act, anchors, chooser, results);
  return {results.tokens, results.confidence, results.logits};
}

DraftOutput draft(
    const Model& model,
    const DraftStep& step,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options,
    DraftChooser* chooser
) {
  const PlacedStep placed(model, step, {.replay = options.replay}, exec);
  return run_draft(model, placed, step.anchors, cache, ops, exec, options, chooser);
}

}  // namespace di::model
