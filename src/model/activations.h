// What flows through the layers of one pass: the rows it computes, their residual streams, and the
// selections that later layers reuse. All memory comes from the step's arena.
#pragma once

#include <span>
#include <vector>

#include "model/model.h"

namespace di::model {

/// The rows of a step, by sequence and one by one.
struct RowSet {
  std::vector<ops::SequenceRows> sequences;
  std::vector<int32_t> sequence_of;
  std::vector<int64_t> positions;
  std::vector<uint8_t> is_image;  ///< empty when the step has no image rows

  int64_t count() const { return static_cast<int64_t>(positions.size()); }
  ops::Rows view() const {
    return {
        sequences,
        View<const int32_t, 1>(sequence_of.data(), count()),
        View<const int64_t, 1>(positions.data(), count())};
  }
  View<const uint8_t, 1> image_view() const {
    return View<const uint8_t, 1>(is_image.data(), static_cast<int64_t>(is_image.size()));
  }
};

/// The entries of a layer with the given ratio that these rows complete.
std::vector<ops::NewEntry> new_entries(const RowSet& rows, int64_t ratio);

/// The mixes that one mHC site yields. Source: specification section 4.2.
struct SiteMix {
  View<float, 2> pre;   // [rows, c]: collapses the streams at the next site
  View<float, 2> post;  // [rows, c]
  View<float, 3> comb;  // [rows, c, c]
};

/// The state of a pass between sublayers; everything else is scratch of one sublayer.
struct Activations {
  RowSet rows;
  View<bf16, 3> h;              // [rows, c, hidden_size]: residual streams
  View<bf16, 3> h_next;         // where expand() writes; then the two change places
  View<float, 2> a;             // [rows, c]: pre-mix handed from site to site
  SiteMix mix;                  // of the current site
  View<int32_t, 2> selected;    // [rows, index_topk]: of the newest index source
  View<int32_t, 2> candidates;  // [rows, candidate_topk_blocks]: of the candidate source
  View<bf16, 2> taps;           // [rows, targets · hidden_size], or empty: nobody wants them
  std::vector<uint8_t> finite;  // [sequences]: 0 once a row of it was not finite
};

/// What every part of the pass is given.
struct Pass {
  const Model& model;
  const Step& step;
  cache::KvCache& cache;
  const ops::OpTable& ops;
  ops::Exec& exec;
  const ForwardOptions& options;

  Arena& arena() const { return exec.scratch; }
  const LayerWeights& layer(int64_t l) const {
    return model.weights.layers[static_cast<std::size_t>(l)];
  }
  const LayerRole& role(int64_t l) const { return model.roles[static_cast<std::size_t>(l)]; }
  /// Layers with compression rotate by the YaRN table, queries and window keys included.
  View<const float, 1> frequencies(int64_t l) const {
    const auto& table = role(l).ratio > 0 ? model.yarn_frequencies : model.base_frequencies;
    return View<const float, 1>(table.data(), static_cast<int64_t>(table.size()));
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
/// act.mix: the mixes of a site from the streams as they are. mhc.cc
void mix_streams(const Pass& pass, const SiteWeights& site, Activations& act);
/// RMS(Σ_c A_c · h_c): a sublayer's input [rows, hidden_size]. mhc.cc
View<bf16, 2> collapse_and_norm(
    const Pass& pass, const View<const bf16, 1>& norm, const Activations& act
);
/// h_j = post_j · y + Σ_i comb_ij · h_i, and the site's pre becomes the next pre-mix. mhc.cc
void expand(const Pass& pass, const View<bf16, 2>& y, Activations& act);
/// A KV source's own entries: compressed records and index keys of all rows. compressor.cc
void compress(const Pass& pass, int64_t l, const View<bf16, 2>& x, const Activations& act);
/// An index source's selection, from the quantised low-rank query. indexer.cc
void select_entries(
    const Pass& pass, int64_t l, const View<bf16, 2>& x, const ops::Q8View& qr, Activations& act
);
/// The attention sublayer [rows, hidden_size]. attention.cc
View<bf16, 2> attention(const Pass& pass, int64_t l, const View<bf16, 2>& x, Activations& act);
/// The mixture-of-experts sublayer [rows, hidden_size]. moe.cc
View<bf16, 2> mixture_of_experts(
    const Pass& pass, int64_t l, const View<bf16, 2>& x, const Activations& act
);
/// Sets act.finite[s] to 0 for each sequence s with a row whose streams are not all finite.
/// finite.cc
void note_finite(const Pass& pass, Activations& act);
/// Final collapse, norm and head for the rows that want logits. head.cc
std::vector<float> logits(const Pass& pass, const Activations& act);

// Shorthands over the op table.

/// Q8 of x.
ops::Q8View quantize(const Pass& pass, const View<const bf16, 2>& x);
/// x · Wᵀ for quantised activations, bf16.
View<bf16, 2> linear_q8(const Pass& pass, const ops::Q8View& x, const ops::Weight& w);
/// x · Wᵀ for bf16 activations, bf16.
View<bf16, 2> linear_bf16(
    const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w, int64_t groups = 1
);
/// x · Wᵀ for bf16 activations, fp32.
View<float, 2> linear_f32(const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w);
/// RMS norm in place.
void norm(const Pass& pass, const View<bf16, 2>& x, const View<const bf16, 1>& weight);
/// Rotates heads of width x.dim(2) in place.
void rotate(
    const Pass& pass,
    int64_t l,
    const View<bf16, 3>& x,
    const View<const int64_t, 1>& positions,
    bool inverse = false
);

}  // namespace di::model
