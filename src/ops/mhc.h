// Manifold-constrained hyper-connections: hc_mult residual streams, mixed before and after each
// sublayer. Source: model specification section 4.2.
#pragma once

#include "ops/weight.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops {

/// The mixes of one site. With c = hc_mult streams:
/// m = (fn · flatten(h)) · rsqrt(mean(h²) + norm_eps);
/// pre = σ(m[0..c) · scale0 + base) + hc_eps; post = 2σ(m[c..2c) · scale1 + base);
/// comb = Sinkhorn(m[2c..) · scale2 + base), rows indexed by input stream.
struct MhcMix {
  View<float, 2> pre;          // [rows, c]
  View<float, 2> post;         // [rows, c]
  View<float, 3> comb;         // [rows, c, c]
  View<float, 2> mixes;        // [rows, c · (2 + c)]: m; scratch of the caller
  View<const bf16, 3> h;       // [rows, c, hidden]
  Weight fn;                   // kF32 [c · (2 + c), c · hidden]
  View<const float, 1> scale;  // [3]
  View<const float, 1> base;   // [c · (2 + c)]
  int sinkhorn_iters = 0;      // 0: comb is what Sinkhorn begins with, see MhcExpand
  float norm_eps = 0;
  float hc_eps = 0;
};

/// x = Σ_c a_c · h_c.
struct MhcCollapse {
  View<bf16, 2> x;         // [rows, hidden]
  View<const bf16, 3> h;   // [rows, c, hidden]
  View<const float, 2> a;  // [rows, c]
};

/// h_out_j = post_j · y + Σ_i comb_ij · h_i: input stream i, output stream j.
///
/// With sinkhorn_iters > 0 comb is what Sinkhorn begins with, and the passes are made here: nobody
/// waits for them, since a device makes them while the sublayer is still at work. So attention or
/// experts must stand between the op that wrote comb and this one (launch_overlapped.cuh).
struct MhcExpand {
  View<bf16, 3> h_out;        // [rows, c, hidden], must not alias h
  View<const bf16, 2> y;      // [rows, hidden]
  View<const bf16, 3> h;      // [rows, c, hidden]
  View<const float, 2> post;  // [rows, c]
  View<const float, 3> comb;  // [rows, c, c]
  int sinkhorn_iters = 0;
  float hc_eps = 0;
};

/// All that a site does before its sublayer: the mixes, the collapse with the pre-mix of the site
/// before, the sublayer's norm, and the Q8 form of what the norm gives.
struct MhcSite {
  MhcMix mix;                // from mix.h, which is collapsed too
  View<bf16, 2> x;           // [rows, hidden]: the sublayer's input
  View<uint8_t, 2> codes;    // [rows, hidden]: x in Q8
  View<uint8_t, 2> scales;   // [rows, hidden / 32]
  View<const float, 2> a;    // [rows, c]: the pre-mix that collapses
  View<const bf16, 1> norm;  // [hidden]
};

}  // namespace di::ops
