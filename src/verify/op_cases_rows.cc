// Cases of the operators between sublayers: norms, rotary positions, hyper-connections.
#include <fmt/format.h>

#include "model/rope_tables.h"
#include "ops/canonical.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

constexpr int kSinkhornIters = 20;
constexpr float kNormEps = 1e-20f;
constexpr float kHcEps = 1e-6f;

/// Frequencies of the tables that the rope case names.
std::vector<float> frequencies(const std::string& table, int64_t rope_dim) {
  if (table == "base") return model::base_frequencies(10000, rope_dim);
  const bool odd = table == "yarn_odd";
  return model::yarn_frequencies(
      odd ? 120000 : 160000,
      rope_dim,
      {.factor = odd ? 12.0 : 16.0,
       .beta_fast = 32,
       .beta_slow = 1,
       .original_max_position_embeddings = odd ? 4096 : 65536}
  );
}

void check_rope_table(OpCase& test, const std::string& table) {
  const Fixture& file = test.fixture();
  const std::vector<int64_t> positions = file.integers("positions");
  const int64_t heads = test.dim("x", 1), width = test.dim("x", 2);
  const std::vector<float> table_values = frequencies(table, width);
  test.check("freqs_" + table, table_values);
  std::vector<float> cosines, sines;
  for (const int64_t position : positions) {
    for (const float frequency : table_values) {
      const ops::Rotation rotation = ops::rotation(position, frequency, /*inverse=*/false);
      cosines.push_back(rotation.cosine);
      sines.push_back(rotation.sine);
    }
  }
  test.check("cos_" + table, cosines);
  test.check("sin_" + table, sines);
  for (const bool inverse : {false, true}) {
    std::vector<bf16> x = file.bf16s("x");
    test.ops().rope(
        test.exec(),
        {.x = View<bf16, 3>(x.data(), std::ssize(positions), heads, width),
         .positions = View<const int64_t, 1>(positions.data(), std::ssize(positions)),
         .frequencies = View<const float, 1>(table_values.data(), std::ssize(table_values)),
         .inverse = inverse}
    );
    test.check((inverse ? "yinv_" : "y_") + table, x);
  }
}

/// The mixes of one site, owned.
struct Mixes {
  Mixes(int64_t num_rows, int64_t num_streams)
      : rows(num_rows),
        streams(num_streams),
        pre(static_cast<std::size_t>(rows * streams)),
        post(pre.size()),
        comb(pre.size() * static_cast<std::size_t>(streams)),
        mixes(pre.size() * static_cast<std::size_t>(2 + streams)) {}

  void compute(
      OpCase& test,
      const std::vector<bf16>& h,
      const ops::Weight& fn,
      const std::vector<float>& scale,
      const std::vector<float>& base
  ) {
    test.ops().mhc_mix(
        test.exec(),
        {.pre = View<float, 2>(pre.data(), rows, streams),
         .post = View<float, 2>(post.data(), rows, streams),
         .comb = View<float, 3>(comb.data(), rows, streams, streams),
         .mixes = View<float, 2>(mixes.data(), rows, streams * (2 + streams)),
         .h = View<const bf16, 3>(h.data(), rows, streams, fn.cols / streams),
         .fn = fn,
         .scale = View<const float, 1>(scale.data(), std::ssize(scale)),
         .base = View<const float, 1>(base.data(), std::ssize(base)),
         .sinkhorn_iters = kSinkhornIters,
         .norm_eps = kNormEps,
         .hc_eps = kHcEps}
    );
  }

  int64_t rows, streams;
  std::vector<float> pre, post, comb, mixes;
};

void check_mixes(OpCase& test) {
  const Fixture& file = test.fixture();
  Mixes site(test.dim("h", 0), test.dim("h", 1));
  const ops::Weight fn = test.weight(ops::WeightFormat::kF32, "fn");
  site.compute(test, file.bf16s("h"), fn, file.floats("scale"), file.floats("base"));
  test.check("mixes", site.mixes);
  test.check("pre", site.pre);
  test.check("post", site.post);
  test.check("comb", site.comb);
}

/// Given mixes instead of a projection: row r has the one stream value √N in place r of N, whose
/// mean square is 1, so that column r of fn, times √N, comes out as its mixes, exactly when √N is a
/// power of two.
void check_given_mixes(OpCase& test) {
  const std::vector<float> given = test.fixture().floats("sk_mixes");
  const int64_t rows = test.dim("sk_mixes", 0), outputs = test.dim("sk_mixes", 1);
  const int64_t streams = test.dim("sk_pre", 1);
  int64_t root = 16;
  while (root * root < rows)
    root *= 2;
  const int64_t width = root * root;
  std::vector<bf16> h(static_cast<std::size_t>(rows * width), to_bf16(0));
  std::vector<float> fn(static_cast<std::size_t>(outputs * width));
  for (int64_t row = 0; row < rows; ++row) {
    h[static_cast<std::size_t>(row * width + row)] = to_bf16(static_cast<float>(root));
    for (int64_t i = 0; i < outputs; ++i) {
      fn[static_cast<std::size_t>(i * width + row)] =
          given[static_cast<std::size_t>(row * outputs + i)] / static_cast<float>(root);
    }
  }
  Mixes site(rows, streams);
  const std::vector<float> scale(3, 1.0f);
  const std::vector<float> base(static_cast<std::size_t>(outputs));
  site.compute(test, h, test.weight(fn, outputs, width), scale, base);
  test.check("sk_pre", site.pre);
  test.check("sk_post", site.post);
  test.check("sk_comb", site.comb);
}

void check_streams(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("h", 0), streams = test.dim("h", 1), hidden = test.dim("h", 2);
  const std::vector<bf16> h = file.bf16s("h"), y = file.bf16s("y");
  const std::vector<float> a = file.floats("A"), post = file.floats("post"),
                           comb = file.floats("comb");
  std::vector<bf16> collapsed(static_cast<std::size_t>(rows * hidden)), expanded(h.size());
  const View<const bf16, 3> h_view(h.data(), rows, streams, hidden);
  test.ops().mhc_collapse(
      test.exec(),
      {.x = View<bf16, 2>(collapsed.data(), rows, hidden),
       .h = h_view,
       .a = View<const float, 2>(a.data(), rows, streams)}
  );
  test.ops().mhc_expand(
      test.exec(),
      {.h_out = View<bf16, 3>(expanded.data(), rows, streams, hidden),
       .y = View<const bf16, 2>(y.data(), rows, hidden),
       .h = h_view,
       .post = View<const float, 2>(post.data(), rows, streams),
       .comb = View<const float, 3>(comb.data(), rows, streams, streams)}
  );
  test.check("collapsed", collapsed);
  test.check("expanded", expanded);
}

}  // namespace

void run_rmsnorm_case(OpCase& test) {
  for (const std::string& name : test.fixture().names()) {
    const auto eps_at = name.find("_eps");
    if (!name.starts_with("y") || eps_at == std::string::npos) continue;
    const std::string width_text = name.substr(1, eps_at - 1);
    const std::vector<bf16> x = test.fixture().bf16s("x" + width_text);
    const std::vector<bf16> weight = test.fixture().bf16s("w" + width_text);
    std::vector<bf16> y(x.size());
    const int64_t rows = test.dim(name, 0), width = test.dim(name, 1);
    test.ops().rms_norm(
        test.exec(),
        {.y = View<bf16, 2>(y.data(), rows, width),
         .x = View<const bf16, 2>(x.data(), rows, width),
         .weight = View<const bf16, 1>(weight.data(), width),
         .eps = std::stof(name.substr(eps_at + 4))}
    );
    test.check(name, y);
  }
}

void run_rope_case(OpCase& test) {
  for (const char* table : {"base", "yarn", "yarn_odd"})
    check_rope_table(test, table);
}

void run_mhc_case(OpCase& test) {
  check_mixes(test);
  check_given_mixes(test);
  check_streams(test);
}

}  // namespace di::verify
