// What flows through the layers of one pass: the residual streams of its rows, and the selections
// that later layers reuse. All memory comes from the step's arena.
#pragma once

#include "model/model.h"
#include "model/placed_step.h"

namespace di::model {

/// The mixes that one mHC site yields. Source: specification section 4.2.
struct SiteMix {
  View<float, 2> pre;   // [rows, c]: collapses the streams at the next site
  View<float, 2> post;  // [rows, c]
  View<float, 3> comb;  // [rows, c, c], before its Sinkhorn passes
};

/// The state of a pass between sublayers; everything else is scratch of one sublayer.
struct Activations {
  const RowSet* rows = nullptr;  // that the layers compute now
  View<bf16, 3> h;               // [rows, c, hidden_size]: residual streams
  View<bf16, 3> h_next;          // where expand() writes; then the two change places
  View<float, 2> a;              // [rows, c]: pre-mix handed from site to site
  SiteMix mix;                   // of the current site
  View<bf16, 2> y;               // [rows, hidden_size]: what the newest sublayer gave
  View<int32_t, 2> selected;     // [rows, index_topk]: of the newest index source
  View<int32_t, 2> candidates;   // [rows, candidate_topk_blocks]: of the candidate source
  View<bf16, 2> taps;            // [rows, targets · hidden_size], or empty: nobody wants them
  View<uint8_t, 1> finite;       // [sequences]: 0 once a row of it was not finite
  View<int32_t, 3> expert_ids;   // [layers, rows, k], or empty: they are not kept

  int64_t num_rows() const { return rows->count(); }
};

/// What every part of the pass is given.
struct Pass {
  const Model& model;
  const PlacedStep& placed;
  cache::KvCache& cache;
  const ops::OpTable& ops;
  ops::Exec& exec;
  const ForwardOptions& options;

  Arena& arena() const { return exec.scratch; }
  /// Draft stage s stands behind the backbone, as layer num_hidden_layers + s.
  bool is_draft(int64_t l) const { return l >= model.config.num_hidden_layers; }
  const LayerWeights& layer(int64_t l) const {
    return is_draft(l) ? model.weights.draft
                             ->stages[static_cast<std::size_t>(l - model.config.num_hidden_layers)]
                       : model.weights.layers[static_cast<std::size_t>(l)];
  }
  const LayerRole& role(int64_t l) const { return model.roles[static_cast<std::size_t>(l)]; }
  /// Layers with compression rotate by the YaRN table, queries and window keys included.
  View<const float, 1> frequencies(int64_t l) const {
    return role(l).ratio > 0 ? model.yarn_frequencies : model.base_frequencies;
  }
};

// The parts of the pass, each in its own file, in the order of a layer.

/// Takes the memory of `act` for its rows and fills it: h_c = e for every stream, A = (1, 0, …).
/// embed.cc
void embed(const Pass& pass, Activations& act);
/// Reads the n-gram memory into the streams. engram.cc
void engram(const Pass& pass, int64_t l, Activations& act);
/// This layer's column of the draft taps, when it is a draft target. draft_taps.cc
void tap(const Pass& pass, int64_t l, Activations& act);
/// The drafter's context: one vector for each row from its taps, and that vector's window keys in
/// the ring of every draft stage. draft_context.cc
void write_draft_context(const Pass& pass, const Activations& act);
/// A sublayer's input: x = RMS(Σ_c A_c · h_c), and its Q8 form.
struct SiteInput {
  View<bf16, 2> x;  // [rows, hidden_size]
  View<uint8_t, 2> codes;
  View<uint8_t, 2> scales;

  ops::Q8View q8() const { return {codes, scales}; }
};
/// The input of the sublayer at `site`, and act.mix from the streams as they are. mhc.cc
SiteInput enter_site(
    const Pass& pass, const SiteWeights& site, const View<const bf16, 1>& norm, Activations& act
);
/// h_j = post_j · y + Σ_i comb_ij · h_i, and the site's pre becomes the next pre-mix. mhc.cc
void expand(const Pass& pass, Activations& act);
/// A KV source's own entries: compressed records and index keys of all rows. compressor.cc
void compress(const Pass& pass, int64_t l, const View<bf16, 2>& x, const Activations& act);
/// What an index source asks.
struct IndexQueries {
  View<bf16, 2> q;             // [rows, index_n_heads · index_head_dim]
  View<bf16, 2> head_weights;  // [rows, index_n_heads]
};
/// What the projection of an index source's head weights is multiplied by:
/// 1 / √(index_head_dim · index_n_heads). indexer.cc
float index_factor(const IndexerConfig& config);
/// An index source's selection. indexer.cc
void select_entries(const Pass& pass, int64_t l, const IndexQueries& queries, Activations& act);
/// Window records [rows, record_bytes] of the keys of x, not yet in the rings. attention.cc
View<uint8_t, 2> window_records(
    const Pass& pass, int64_t l, const ops::Q8View& x, const Activations& act
);
/// The attention sublayer, into act.y. attention.cc
void attention(const Pass& pass, int64_t l, const SiteInput& input, Activations& act);
/// The mixture-of-experts sublayer, into act.y. moe.cc
void mixture_of_experts(const Pass& pass, int64_t l, const SiteInput& input, Activations& act);
/// One layer of the backbone or of the drafter. forward.cc
void run_layer(const Pass& pass, int64_t l, Activations& act);
/// The streams of the rows that want logits, collapsed [logit rows, hidden_size]. head.cc
View<bf16, 2> final_collapse(const Pass& pass, const Activations& act);
/// Final collapse, norm and head for the rows that want logits; the result is `y`
/// [logit rows, vocab_size]. head.cc
void logits(const Pass& pass, const Activations& act, const View<float, 2>& y);

/// Shows a tensor to the observer, when there is one, and takes back what it wrote. observe.cc
void observe_bytes(const Pass& pass, std::string_view name, int64_t l, ObservedTensor tensor);
template <class T, int Rank>
void observe(const Pass& pass, std::string_view name, int64_t l, const View<T, Rank>& view) {
  if (pass.options.observer == nullptr || view.data == nullptr) return;
  observe_bytes(pass, name, l, {view.data, dtype_of<T>(), {view.dims, view.dims + Rank}});
}

// Shorthands over the op table.

/// Q8 of x.
ops::Q8View quantize(const Pass& pass, const View<const bf16, 2>& x);
/// x · Wᵀ for quantised activations, bf16.
View<bf16, 2> linear_q8(const Pass& pass, const ops::Q8View& x, const ops::Weight& w);
/// The same, into `y`.
void linear_q8(
    const Pass& pass, const View<bf16, 2>& y, const ops::Q8View& x, const ops::Weight& w
);
/// x · Wᵀ for bf16 activations, bf16.
View<bf16, 2> linear_bf16(const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w);
/// The same by groups (ops::Linear), in Q8.
ops::Q8View linear_to_q8(
    const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w, int64_t groups
);
/// x · Wᵀ for bf16 activations, fp32.
View<float, 2> linear_f32(const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w);
/// RMS norm in place, and the result in Q8.
ops::Q8View norm_q8(const Pass& pass, const View<bf16, 2>& x, const View<const bf16, 1>& weight);
/// RMS norm in place.
void norm(const Pass& pass, const View<bf16, 2>& x, const View<const bf16, 1>& weight);
/// A copy of all rows of `from` to the first rows of `to`.
template <class T, int Rank>
ops::CopyRows whole(const View<T, Rank>& from, const View<T, Rank>& to) {
  const auto row_bytes = static_cast<int64_t>(sizeof(T)) * from.stride();
  return {
      .to = reinterpret_cast<std::byte*>(to.data),
      .to_stride = row_bytes,
      .from = reinterpret_cast<const std::byte*>(from.data),
      .from_stride = row_bytes,
      .row_bytes = row_bytes,
      .num_rows = from.dim(0),
      .sources = {}};
}

/// The rows `sources` of a tensor, in memory of their own.
template <class T, int Rank>
View<T, Rank> gather(
    const Pass& pass, const View<T, Rank>& tensor, const View<const int64_t, 1>& sources
) {
  View<T, Rank> result = tensor;
  result.dims[0] = sources.dim(0);
  result.data = pass.arena().take<T>(result.size());
  ops::CopyRows copy = whole(tensor, result);
  copy.num_rows = sources.dim(0);
  copy.sources = sources;
  pass.ops.copy_rows(pass.exec, copy);
  return result;
}
/// Rotates heads of width x.dim(2) in place.
void rotate(
    const Pass& pass,
    int64_t l,
    const View<bf16, 3>& x,
    const View<const int64_t, 1>& positions,
    bool inverse = false
);

}  // namespace di::model
