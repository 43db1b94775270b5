// The site of the hyper-connections against the reference, and its rows' independence.
#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "ops/cuda/mhc.h"
#include "ops/cuda/packing.h"
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
  std::vector<bf16> h, x;
  std::vector<uint8_t> codes, scales;
};

/// Operands of one size. Rows look like a model's: streams of one size, another one in every row.
struct SiteInputs {
  int64_t rows, hidden;
  std::vector<bf16> h, norm;
  std::vector<float> fn, scale, base, a;
  std::vector<bf16> y;  // of the site before, with its mixes; h are the streams before it
  std::vector<float> post, comb;

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
    for (int64_t i = 0; i < rows * hidden; ++i)
      y.push_back(to_bf16(normal(random)));
    for (int64_t i = 0; i < rows * 4; ++i)
      post.push_back(std::abs(normal(random)));
    for (int64_t i = 0; i < rows * 16; ++i)
      comb.push_back(0.25f + 0.1f * normal(random));
  }

  /// Rows [begin, begin + count) alone.
  SiteInputs part(int64_t begin, int64_t count) const {
    SiteInputs result = *this;
    result.rows = count;
    const auto cut = [&](auto& values, int64_t width) {
      const auto first = values.begin() + begin * width;
      values = {first, first + count * width};
    };
    cut(result.h, 4 * hidden);
    cut(result.a, 4);
    cut(result.y, hidden);
    cut(result.post, 4);
    cut(result.comb, 16);
    return result;
  }
};

/// Memory of a site's operands, `Array<T>` of the machine or the device.
template <template <class> class Array>
struct SiteMemory {
  const SiteInputs& in;
  Array<bf16> h{in.h}, y{in.y}, norm{in.norm};
  Array<float> fn{in.fn}, scale{in.scale}, base{in.base}, a{in.a};
  // Mixes of the site before, which those of this one replace.
  Array<float> post{in.post}, comb{in.comb};
  Array<float> pre{blank<float>(in.rows * 4)}, mixes{blank<float>(in.rows * kMixes)};
  Array<bf16> h_out{blank<bf16>(in.rows * 4 * in.hidden)}, x{blank<bf16>(in.rows * in.hidden)};
  Array<uint8_t> codes{blank<uint8_t>(in.rows * in.hidden)};
  Array<uint8_t> scales{blank<uint8_t>(in.rows * in.hidden / 32)};

  MhcExpand expand() const {
    return {
        .h_out = View<bf16, 3>(h_out.data(), in.rows, 4, in.hidden),
        .y = View<const bf16, 2>(y.data(), in.rows, in.hidden),
        .h = View<const bf16, 3>(h.data(), in.rows, 4, in.hidden),
        .post = View<const float, 2>(post.data(), in.rows, 4),
        .comb = View<const float, 3>(comb.data(), in.rows, 4, 4)};
  }
  MhcSite site(const void* projection) const {
    return {
        .mix =
            {.pre = View<float, 2>(pre.data(), in.rows, 4),
             .post = View<float, 2>(post.data(), in.rows, 4),
             .comb = View<float, 3>(comb.data(), in.rows, 4, 4),
             .mixes = View<float, 2>(mixes.data(), in.rows, kMixes),
             .h = View<const bf16, 3>(h_out.data(), in.rows, 4, in.hidden),
             .fn =
                 {.format = WeightFormat::kF32,
                  .rows = kMixes,
                  .cols = 4 * in.hidden,
                  .data = static_cast<const std::byte*>(projection),
                  .scales = nullptr},
             .scale = View<const float, 1>(scale.data(), 3),
             .base = View<const float, 1>(base.data(), kMixes),
             .sinkhorn_iters = kIters,
             .norm_eps = kEps,
             .hc_eps = kEps},
        .x = View<bf16, 2>(x.data(), in.rows, in.hidden),
        .codes = View<uint8_t, 2>(codes.data(), in.rows, in.hidden),
        .scales = View<uint8_t, 2>(scales.data(), in.rows, in.hidden / 32),
        .a = View<const float, 2>(a.data(), in.rows, 4),
        .norm = View<const bf16, 1>(norm.data(), in.hidden)};
  }
  SiteResult result() const {
    return {
        pre.read(),
        post.read(),
        comb.read(),
        mixes.read(),
        h_out.read(),
        x.read(),
        codes.read(),
        scales.read()};
  }
};

/// A vector in the clothes of a DeviceArray.
template <class T>
class HostArray {
 public:
  explicit HostArray(std::vector<T> values) : values_(std::move(values)) {}
  T* data() const { return values_.data(); }
  std::vector<T> read() const { return values_; }

 private:
  mutable std::vector<T> values_;
};

SiteResult on_host(const SiteInputs& in) {
  const SiteMemory<HostArray> memory{in};
  ref::mhc_expand(memory.expand(), {0, in.rows});
  ref::mhc_site(memory.site(memory.fn.data()), {0, in.rows});
  return memory.result();
}

/// How the device is asked for it.
enum class Way { kSite, kMixesAlone, kNoPasses };

SiteResult on_device(const SiteInputs& in, Way way = Way::kSite) {
  Machine machine;
  const SiteMemory<DeviceArray> memory{in};
  const int64_t bytes = packed_bytes(WeightFormat::kF32, kMixes, 4 * in.hidden);
  const DeviceArray<std::byte> packed(std::max<int64_t>(1, bytes));
  const void* fn = memory.fn.data();
  if (bytes > 0) {
    pack(SiteMemory<HostArray>{in}.site(in.fn.data()).mix.fn, {0, kMixes}, packed.data());
    fn = packed.data();
  }
  MhcSite site = memory.site(fn);
  if (way == Way::kNoPasses) site.mix.sinkhorn_iters = 0;
  mhc_expand(machine.device(), memory.expand());
  if (way == Way::kMixesAlone) {
    mhc_mix(machine.device(), site.mix);
  } else {
    mhc_site(machine.device(), site);
  }
  machine.wait();
  return memory.result();
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
  EXPECT_TRUE(same(found.h, expected.h));
  EXPECT_TRUE(same(found.x, expected.x));
  EXPECT_TRUE(same(found.codes, expected.codes));
  EXPECT_TRUE(same(found.scales, expected.scales));
}

TEST_P(MhcSiteOnCuda, MixesAloneAreTheSame) {
  DI_NEEDS_GPU();
  const SiteInputs in = inputs();
  const SiteResult whole = on_device(in);
  const SiteResult alone = on_device(in, Way::kMixesAlone);
  EXPECT_TRUE(same(whole.mixes, alone.mixes));
  EXPECT_TRUE(same(whole.pre, alone.pre));
  EXPECT_TRUE(same(whole.post, alone.post));
  EXPECT_TRUE(same(whole.comb, alone.comb));
}

TEST_P(MhcSiteOnCuda, PassesLeftToTheExpandAreTheSame) {
  DI_NEEDS_GPU();
  SiteInputs in = inputs();
  const SiteResult before = on_device(in, Way::kNoPasses);
  const SiteResult behind = on_device(in);
  EXPECT_TRUE(same(before.x, behind.x));
  EXPECT_TRUE(same(before.post, behind.post));
  in.post = before.post;
  in.comb = before.comb;
  const SiteMemory<DeviceArray> late{in};
  const SiteMemory<HostArray> reference{in};
  in.comb = behind.comb;
  const SiteMemory<DeviceArray> early{in};
  Machine machine;
  const auto with_passes = [](MhcExpand op) {
    op.sinkhorn_iters = kIters;
    op.hc_eps = kEps;
    return op;
  };
  mhc_expand(machine.device(), with_passes(late.expand()));
  mhc_expand(machine.device(), early.expand());
  ref::mhc_expand(with_passes(reference.expand()), {0, in.rows});
  machine.wait();
  EXPECT_TRUE(same(late.h_out.read(), early.h_out.read()));
  EXPECT_TRUE(same(late.h_out.read(), reference.h_out.read()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    MhcSiteOnCuda,
    ::testing::Values(
        std::pair<int64_t, int64_t>{1, 5120},
        std::pair<int64_t, int64_t>{7, 5120},
        std::pair<int64_t, int64_t>{33, 5120},
        std::pair<int64_t, int64_t>{150, 5120},
        std::pair<int64_t, int64_t>{600, 5120},
        std::pair<int64_t, int64_t>{20, 4096},
        std::pair<int64_t, int64_t>{70, 1024},
        std::pair<int64_t, int64_t>{6, 1536},
        std::pair<int64_t, int64_t>{300, 1536},
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
      EXPECT_TRUE(same(alone.h, part(whole.h, 300, begin, count))) << begin;
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
