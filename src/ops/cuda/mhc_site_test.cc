// The site of the hyper-connections against the reference, and its rows' independence.
#include <cstring>
#include <random>

#include "ops/cuda/mhc.h"
#include "ops/cuda/testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;
using testing::relative_error;

constexpr int64_t kMixes = 24;
constexpr int kIters = 20;
constexpr float kEps = 1e-6f;

template <class T>
std::vector<T> blank(int64_t count) {
  return std::vector<T>(static_cast<std::size_t>(count), T{});
}

/// What a site gives.
struct SiteResult {
  std::vector<float> pre, post, comb, mixes;
  std::vector<bf16> x;
  std::vector<uint8_t> codes, scales;
};

/// Operands of one size. Rows look like a model's: streams of one size, another one in every row.
struct SiteInputs {
  int64_t rows, hidden;
  std::vector<bf16> h, norm;
  std::vector<float> fn, scale, base, a;

  SiteInputs(int64_t rows_, int64_t hidden_) : rows(rows_), hidden(hidden_) {
    std::mt19937_64 random(11);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * 4 * hidden; ++i)
      h.push_back(
          to_bf16(normal(random) * std::ldexp(1.0f, static_cast<int>(i / (4 * hidden) % 7) - 3))
      );
    for (int64_t i = 0; i < hidden; ++i)
      norm.push_back(to_bf16(1 + 0.1f * normal(random)));
    for (int64_t i = 0; i < kMixes * 4 * hidden; ++i)
      fn.push_back(normal(random) * 0.02f);
    for (int64_t i = 0; i < 3; ++i)
      scale.push_back(0.5f + 0.1f * normal(random));
    for (int64_t i = 0; i < kMixes; ++i)
      base.push_back(normal(random));
    for (int64_t i = 0; i < rows * 4; ++i)
      a.push_back(normal(random));
  }

  /// Rows [begin, begin + count) alone.
  SiteInputs part(int64_t begin, int64_t count) const {
    SiteInputs result = *this;
    result.rows = count;
    result.h.assign(h.begin() + begin * 4 * hidden, h.begin() + (begin + count) * 4 * hidden);
    result.a.assign(a.begin() + begin * 4, a.begin() + (begin + count) * 4);
    return result;
  }
};

/// Views of the operands of a site over any memory.
template <class F, class B, class Q>
MhcSite site_of(
    const SiteInputs& in,
    const bf16* h,
    const float* fn,
    const float* scale,
    const float* base,
    const float* a,
    const bf16* norm,
    F floats,
    B* x,
    Q codes,
    Q scales
) {
  const int64_t rows = in.rows;
  return {
      .mix =
          {.pre = View<float, 2>(floats(0), rows, 4),
           .post = View<float, 2>(floats(1), rows, 4),
           .comb = View<float, 3>(floats(2), rows, 4, 4),
           .mixes = View<float, 2>(floats(3), rows, kMixes),
           .h = View<const bf16, 3>(h, rows, 4, in.hidden),
           .fn =
               {.format = WeightFormat::kF32,
                .rows = kMixes,
                .cols = 4 * in.hidden,
                .data = reinterpret_cast<const std::byte*>(fn),
                .scales = nullptr},
           .scale = View<const float, 1>(scale, 3),
           .base = View<const float, 1>(base, kMixes),
           .sinkhorn_iters = kIters,
           .norm_eps = kEps,
           .hc_eps = kEps},
      .x = View<bf16, 2>(x, rows, in.hidden),
      .codes = View<uint8_t, 2>(codes, rows, in.hidden),
      .scales = View<uint8_t, 2>(scales, rows, in.hidden / 32),
      .a = View<const float, 2>(a, rows, 4),
      .norm = View<const bf16, 1>(norm, in.hidden)};
}

SiteResult on_host(const SiteInputs& in) {
  SiteResult r{
      blank<float>(in.rows * 4),
      blank<float>(in.rows * 4),
      blank<float>(in.rows * 16),
      blank<float>(in.rows * kMixes),
      blank<bf16>(in.rows * in.hidden),
      blank<uint8_t>(in.rows * in.hidden),
      blank<uint8_t>(in.rows * in.hidden / 32)};
  float* floats[] = {r.pre.data(), r.post.data(), r.comb.data(), r.mixes.data()};
  const MhcSite site = site_of(
      in,
      in.h.data(),
      in.fn.data(),
      in.scale.data(),
      in.base.data(),
      in.a.data(),
      in.norm.data(),
      [&](int i) { return floats[i]; },
      r.x.data(),
      r.codes.data(),
      r.scales.data()
  );
  const RowRange all{0, in.rows};
  ref::mhc_mix(site.mix, all);
  ref::mhc_collapse({.x = site.x, .h = site.mix.h, .a = site.a}, all);
  ref::rms_norm({.y = site.x, .x = site.x, .weight = site.norm, .eps = kEps}, all);
  ref::quantize_fp8({.codes = site.codes, .scales = site.scales, .x = site.x}, all);
  return r;
}

SiteResult on_device(const SiteInputs& in, bool mixes_alone = false) {
  Machine machine;
  const DeviceArray<bf16> h(in.h);
  const DeviceArray<bf16> norm(in.norm);
  const DeviceArray<float> fn(in.fn);
  const DeviceArray<float> scale(in.scale);
  const DeviceArray<float> base(in.base);
  const DeviceArray<float> a(in.a);
  const DeviceArray<float> pre(in.rows * 4);
  const DeviceArray<float> post(in.rows * 4);
  const DeviceArray<float> comb(in.rows * 16);
  const DeviceArray<float> mixes(in.rows * kMixes);
  const DeviceArray<bf16> x(in.rows * in.hidden);
  const DeviceArray<uint8_t> codes(in.rows * in.hidden);
  const DeviceArray<uint8_t> scales(in.rows * in.hidden / 32);
  float* floats[] = {pre.data(), post.data(), comb.data(), mixes.data()};
  const MhcSite site = site_of(
      in,
      h.data(),
      fn.data(),
      scale.data(),
      base.data(),
      a.data(),
      norm.data(),
      [&](int i) { return floats[i]; },
      x.data(),
      codes.data(),
      scales.data()
  );
  if (mixes_alone) {
    mhc_mix(machine.device(), site.mix);
  } else {
    mhc_site(machine.device(), site);
  }
  machine.wait();
  return {
      pre.read(), post.read(), comb.read(), mixes.read(), x.read(), codes.read(), scales.read()};
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t rows, int64_t begin, int64_t count) {
  const int64_t width = std::ssize(all) / rows;
  return {all.begin() + begin * width, all.begin() + (begin + count) * width};
}

class MhcSiteOnCuda : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  SiteInputs inputs() const { return {GetParam().first, GetParam().second}; }
};

TEST_P(MhcSiteOnCuda, EqualsTheReferenceWithinTheTolerance) {
  DI_NEEDS_GPU();
  const SiteInputs in = inputs();
  const SiteResult expected = on_host(in);
  const SiteResult found = on_device(in);
  EXPECT_LT(relative_error(found.mixes, expected.mixes), 4e-7);
  EXPECT_LT(relative_error(found.pre, expected.pre), 4e-7);
  EXPECT_LT(relative_error(found.post, expected.post), 4e-7);
  EXPECT_LT(relative_error(found.comb, expected.comb), 4e-7);
  RecordProperty("mixes_error", std::to_string(relative_error(found.mixes, expected.mixes)));
  EXPECT_TRUE(same(found.x, expected.x));
  EXPECT_TRUE(same(found.codes, expected.codes));
  EXPECT_TRUE(same(found.scales, expected.scales));
}

TEST_P(MhcSiteOnCuda, MixesAloneAreTheSame) {
  DI_NEEDS_GPU();
  const SiteInputs in = inputs();
  const SiteResult whole = on_device(in);
  const SiteResult alone = on_device(in, true);
  EXPECT_TRUE(same(whole.mixes, alone.mixes));
  EXPECT_TRUE(same(whole.pre, alone.pre));
  EXPECT_TRUE(same(whole.post, alone.post));
  EXPECT_TRUE(same(whole.comb, alone.comb));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    MhcSiteOnCuda,
    ::testing::Values(
        std::pair<int64_t, int64_t>{1, 5120},
        std::pair<int64_t, int64_t>{33, 5120},
        std::pair<int64_t, int64_t>{150, 5120},
        std::pair<int64_t, int64_t>{20, 4096},
        std::pair<int64_t, int64_t>{70, 1024},
        std::pair<int64_t, int64_t>{5, 256},
        std::pair<int64_t, int64_t>{3, 128}
    )
);

TEST(MhcSiteRowsOnCuda, DoNotDependOnTheBatch) {
  DI_NEEDS_GPU();
  for (const int64_t hidden : {5120, 4096, 256}) {
    const SiteInputs all(300, hidden);
    const SiteResult whole = on_device(all);
    for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {17, 1}, {299, 1}, {61, 5}, {40, 100}, {3, 200}}) {
      const SiteResult alone = on_device(all.part(begin, count));
      EXPECT_TRUE(same(alone.mixes, part(whole.mixes, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.pre, part(whole.pre, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.post, part(whole.post, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.comb, part(whole.comb, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.x, part(whole.x, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.codes, part(whole.codes, 300, begin, count))) << begin;
      EXPECT_TRUE(same(alone.scales, part(whole.scales, 300, begin, count))) << begin;
    }
  }
}

TEST(MhcSiteRowsOnCuda, KeepANaNToThemselves) {
  DI_NEEDS_GPU();
  for (const int64_t rows : {20, 200}) {
    const SiteInputs clean(rows, 5120);
    SiteInputs bad = clean;
    bad.h[static_cast<std::size_t>(7 * 4 * 5120 + 333)] = {0x7fc0};
    const SiteResult expected = on_device(clean);
    const SiteResult found = on_device(bad);
    EXPECT_TRUE(std::isnan(found.mixes[7 * kMixes]));
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 7}, {8, rows - 8}}) {
      EXPECT_TRUE(
          same(part(found.mixes, rows, begin, count), part(expected.mixes, rows, begin, count))
      );
      EXPECT_TRUE(
          same(part(found.comb, rows, begin, count), part(expected.comb, rows, begin, count))
      );
      EXPECT_TRUE(
          same(part(found.codes, rows, begin, count), part(expected.codes, rows, begin, count))
      );
    }
  }
}

}  // namespace
}  // namespace di::ops::cuda
