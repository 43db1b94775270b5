#include "bench/rowwise_bench.h"

#include <vector>

#include <fmt/format.h>

#include "bench/synthetic.h"

namespace di::bench {
namespace {

constexpr int64_t kHidden = 5120, kStreams = 4;
constexpr int64_t kHeads = 64, kHeadDim = 512, kRopePairs = 32;
constexpr int64_t kIndexWidth = 32 * 128;
constexpr int64_t kInner = 2304;
constexpr int64_t kExperts = 384, kTopK = 6;

/// Operands for any of the ops, wide enough for all of them.
class Operands {
 public:
  Operands(OpRunner& runner, int64_t rows)
      : runner_(runner),
        rows_(rows),
        wide_(synthetic_activations(runner.random(), rows * kHeads * kHeadDim)),
        narrow_(synthetic_activations(runner.random(), rows * kHidden)),
        out_(wide_.size()),
        floats_(static_cast<std::size_t>(rows * kExperts)),
        results_(floats_.size()),
        ids_(static_cast<std::size_t>(rows * kTopK)),
        bytes_(wide_.size()),
        scales_(wide_.size()),
        positions_(static_cast<std::size_t>(rows), 100000) {
    for (std::size_t i = 0; i < floats_.size(); ++i)
      floats_[i] = to_float(wide_[i]);
  }

  void run() {
    measure("rms_norm", kHidden, 4 * kHidden, [&] {
      table().rms_norm(exec(), {out(kHidden), x(kHidden), weight(), 1e-20f});
    });
    measure("quantize_fp8", kHidden, 3 * kHidden, [&] {
      table().quantize_fp8(exec(), {codes(kHidden), scales(kHidden), x(kHidden)});
    });
    measure("quantize_mxfp4", kIndexWidth, 5 * kIndexWidth / 2, [&] {
      table().quantize_mxfp4(exec(), {codes(kIndexWidth / 2), scales(kIndexWidth), x(kIndexWidth)});
    });
    measure("mhc_collapse", kHidden, 2 * (kStreams + 1) * kHidden, [&] {
      table().mhc_collapse(exec(), {out(kHidden), streams(), mixes()});
    });
    measure("mhc_expand", kHidden, 2 * (2 * kStreams + 1) * kHidden, [&] {
      table().mhc_expand(exec(), {out_streams(), x(kHidden), streams(), mixes(), comb()});
    });
    measure("rope", 2 * kRopePairs, 8 * kRopePairs * kHeads, [&] {
      table().rope(
          exec(),
          {View<bf16, 3>(out_.data(), rows_, kHeads, kHeadDim),
           View<const int64_t, 1>(positions_.data(), rows_),
           View<const float, 1>(floats_.data(), kRopePairs)}
      );
    });
    measure("swiglu", kInner, 6 * kInner, [&] {
      table().swiglu(exec(), {out(kInner), x(kInner), streams_as_rows(kInner), {}, 10.0f});
    });
    measure("route", kExperts, 4 * kExperts, [&] {
      const View<const float, 1> bias(floats_.data(), kExperts);
      table().route(
          exec(),
          {.ids = View<int32_t, 2>(ids_.data(), rows_, kTopK),
           .weights = View<float, 2>(results_.data(), rows_, kTopK),
           .logits = View<const float, 2>(floats_.data(), rows_, kExperts),
           .bias = bias,
           .bias_vl = bias,
           .is_image = {},
           .fixed_ids = {},
           .route_scale = 1.5f}
      );
    });
  }

 private:
  template <class Call>
  void measure(const char* name, int64_t width, int64_t row_bytes, const Call& call) {
    if (!runner_.wanted(name)) return;
    const OpCase what{
        .name = name,
        .shape = fmt::format("{}", width),
        .rows = rows_,
        .bytes = static_cast<double>(rows_ * row_bytes)};
    constexpr int64_t kCalls = 64;
    runner_.measure(what, kCalls, [&](int64_t) { call(); });
  }

  const ops::OpTable& table() const { return runner_.table(); }
  ops::Exec& exec() { return runner_.exec(); }
  View<bf16, 2> out(int64_t width) { return View<bf16, 2>(out_.data(), rows_, width); }
  View<const bf16, 2> x(int64_t width) const {
    return View<const bf16, 2>(narrow_.data(), rows_, width);
  }
  View<const bf16, 2> streams_as_rows(int64_t width) const {
    return View<const bf16, 2>(wide_.data(), rows_, width);
  }
  View<const bf16, 1> weight() const { return View<const bf16, 1>(wide_.data(), kHidden); }
  View<uint8_t, 2> codes(int64_t width) { return View<uint8_t, 2>(bytes_.data(), rows_, width); }
  View<uint8_t, 2> scales(int64_t width) {
    return View<uint8_t, 2>(scales_.data(), rows_, width / 32);
  }
  View<const bf16, 3> streams() const {
    return View<const bf16, 3>(wide_.data(), rows_, kStreams, kHidden);
  }
  View<bf16, 3> out_streams() { return View<bf16, 3>(out_.data(), rows_, kStreams, kHidden); }
  View<const float, 2> mixes() const {
    return View<const float, 2>(floats_.data(), rows_, kStreams);
  }
  View<const float, 3> comb() const {
    return View<const float, 3>(floats_.data(), rows_, kStreams, kStreams);
  }

  OpRunner& runner_;
  int64_t rows_;
  std::vector<bf16> wide_, narrow_, out_;
  std::vector<float> floats_, results_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> bytes_, scales_;
  std::vector<int64_t> positions_;
};

}  // namespace

void bench_rowwise(OpRunner& runner) {
  for (const int64_t rows : runner.options().rows)
    Operands(runner, rows).run();
}

}  // namespace di::bench
