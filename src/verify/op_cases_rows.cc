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
    const auto x = test.place(file.bf16s("x"), std::ssize(positions), heads, width);
    test.ops().rope(
        test.exec(),
        {.x = x,
         .positions = test.place(positions),
         .frequencies = test.place(table_values),
         .inverse = inverse}
    );
    test.check((inverse ? "yinv_" : "y_") + table, x);
  }
}

/// The mixes of one site.
struct Mixes {
  Mixes(
      OpCase& test,
      const View<bf16, 3>& h,
      const ops::Weight& fn,
      const std::vector<float>& scale,
      const std::vector<float>& base
  )
      : pre(test.room<float>(h.dim(0), h.dim(1))),
        post(test.room<float>(h.dim(0), h.dim(1))),
        comb(test.room<float>(h.dim(0), h.dim(1), h.dim(1))),
        mixes(test.room<float>(h.dim(0), fn.rows)) {
    test.ops().mhc_mix(
        test.exec(),
        {.pre = pre,
         .post = post,
         .comb = comb,
         .mixes = mixes,
         .h = h,
         .fn = fn,
         .scale = test.place(scale),
         .base = test.place(base),
         .sinkhorn_iters = kSinkhornIters,
         .norm_eps = kNormEps,
         .hc_eps = kHcEps}
    );
  }

  View<float, 2> pre, post;
  View<float, 3> comb;
  View<float, 2> mixes;
};

void check_mixes(OpCase& test) {
  const Fixture& file = test.fixture();
  const auto h = test.place(file.bf16s("h"), test.dim("h", 0), test.dim("h", 1), test.dim("h", 2));
  const ops::Weight fn = test.weight(ops::WeightFormat::kF32, "fn");
  const Mixes site(test, h, fn, file.floats("scale"), file.floats("base"));
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
  const Mixes site(
      test,
      test.place(h, rows, streams, width / streams),
      test.weight(fn, outputs, width),
      std::vector<float>(3, 1.0f),
      std::vector<float>(static_cast<std::size_t>(outputs))
  );
  test.check("sk_pre", site.pre);
  test.check("sk_post", site.post);
  test.check("sk_comb", site.comb);
}

void check_streams(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("h", 0), streams = test.dim("h", 1), hidden = test.dim("h", 2);
  const auto h = test.place(file.bf16s("h"), rows, streams, hidden);
  const auto collapsed = test.room<bf16>(rows, hidden);
  test.ops().mhc_collapse(
      test.exec(), {.x = collapsed, .h = h, .a = test.place(file.floats("A"), rows, streams)}
  );
  const auto expanded = test.room<bf16>(rows, streams, hidden);
  test.ops().mhc_expand(
      test.exec(),
      {.h_out = expanded,
       .y = test.place(file.bf16s("y"), rows, hidden),
       .h = h,
       .post = test.place(file.floats("post"), rows, streams),
       .comb = test.place(file.floats("comb"), rows, streams, streams)}
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
    const int64_t rows = test.dim(name, 0), width = test.dim(name, 1);
    const auto y = test.room<bf16>(rows, width);
    test.ops().rms_norm(
        test.exec(),
        {.y = y,
         .x = test.place(test.fixture().bf16s("x" + width_text), rows, width),
         .weight = test.place(test.fixture().bf16s("w" + width_text)),
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
