#include "ops/cpu/rowwise.h"

#include <bit>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/canonical.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

std::vector<Isa> runnable() {
  std::vector<Isa> sets;
  const CpuFeatures features = detect_cpu();
  if (features.avx2_fma) sets.push_back(Isa::kAvx2);
  if (features.avx512) sets.push_back(Isa::kAvx512);
  return sets;
}

const RowKernels& rows_of(Isa isa) {
  return isa == Isa::kAvx2 ? kAvx2Rows : kAvx512Rows;
}

const AttentionKernels& attention_of(Isa isa) {
  return isa == Isa::kAvx2 ? kAvx2Attention : kAvx512Attention;
}

/// Numbers of many sizes, with zeros of both signs and rows of tiny ones among them.
class RandomRows {
 public:
  explicit RandomRows(unsigned seed) : random_(seed) {}

  std::vector<bf16> bf16s(int64_t count) {
    std::vector<bf16> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int exponent = static_cast<int>(random_() % 12) - (i / 97 % 5 == 4 ? 30 : 8);
      values[i] = to_bf16(random_() % 23 == 0 ? -0.0f : std::ldexp(normal_(random_), exponent));
    }
    return values;
  }
  std::vector<float> floats(int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = normal_(random_);
    return values;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

template <class T>
std::vector<T> blank(int64_t count) {
  return std::vector<T>(static_cast<std::size_t>(count), T{});
}

/// Runs `op(exec, table)` for ref and for the cpu backend with 1 ... 3 threads; all must return
/// the same bytes.
template <class Run>
void expect_equal(const Run& run) {
  ThreadPool alone(1);
  Arena scratch;
  Exec exec{alone, scratch};
  const auto expected = run(exec, ref_ops());
  for (const Isa isa : runnable()) {
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      Exec many{pool, scratch};
      EXPECT_EQ(run(many, cpu_ops(isa)), expected) << name_of(isa) << ", " << threads << " threads";
    }
  }
}

class RowsOnCpu : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  int64_t rows() const { return GetParam().first; }
  int64_t width() const { return GetParam().second; }
};

TEST_P(RowsOnCpu, NormaliseLikeTheReference) {
  RandomRows random(1);
  const auto x = random.bf16s(rows() * width());
  const auto weight = random.bf16s(width());
  expect_equal([&](Exec& exec, const OpTable& ops) {
    auto y = blank<bf16>(rows() * width());
    ops.rms_norm(
        exec,
        {.y = View<bf16, 2>(y.data(), rows(), width()),
         .x = View<const bf16, 2>(x.data(), rows(), width()),
         .weight = View<const bf16, 1>(weight.data(), width()),
         .eps = 1e-20f}
    );
    return y;
  });
}

TEST_P(RowsOnCpu, NormaliseIntoQ8AsInTwoSteps) {
  const int64_t width = RowsOnCpu::width() / 32 * 32;  // whole groups
  RandomRows random(4);
  const auto x = random.bf16s(rows() * width);
  const auto weight = random.bf16s(width);
  const auto run = [&](Exec& exec, const OpTable& ops, bool at_once) {
    auto y = blank<bf16>(rows() * width);
    auto codes = blank<uint8_t>(rows() * width);
    auto scales = blank<uint8_t>(rows() * width / 32);
    const View<bf16, 2> y_view(y.data(), rows(), width);
    const View<uint8_t, 2> code_view(codes.data(), rows(), width);
    const View<uint8_t, 2> scale_view(scales.data(), rows(), width / 32);
    ops.rms_norm(
        exec,
        {.y = y_view,
         .x = View<const bf16, 2>(x.data(), rows(), width),
         .weight = View<const bf16, 1>(weight.data(), width),
         .eps = 1e-20f,
         .codes = at_once ? code_view : View<uint8_t, 2>{},
         .scales = at_once ? scale_view : View<uint8_t, 2>{}}
    );
    if (!at_once) ops.quantize_fp8(exec, {code_view, scale_view, y_view});
    codes.insert(codes.end(), scales.begin(), scales.end());
    return codes;
  };
  expect_equal([&](Exec& exec, const OpTable& ops) { return run(exec, ops, true); });
  ThreadPool pool(1);
  Arena scratch;
  Exec exec{pool, scratch};
  EXPECT_EQ(run(exec, ref_ops(), true), run(exec, ref_ops(), false));
}

TEST_P(RowsOnCpu, QuantiseLikeTheReference) {
  const int64_t width = RowsOnCpu::width() / 32 * 32;  // whole groups
  RandomRows random(2);
  const auto x = random.bf16s(rows() * width);
  const View<const bf16, 2> view(x.data(), rows(), width);
  expect_equal([&](Exec& exec, const OpTable& ops) {
    auto codes = blank<uint8_t>(rows() * width);
    auto scales = blank<uint8_t>(rows() * width / 32);
    const View<uint8_t, 2> scale_view(scales.data(), rows(), width / 32);
    ops.quantize_fp8(exec, {View<uint8_t, 2>(codes.data(), rows(), width), scale_view, view});
    codes.insert(codes.end(), scales.begin(), scales.end());
    return codes;
  });
  expect_equal([&](Exec& exec, const OpTable& ops) {
    auto codes = blank<uint8_t>(rows() * width / 2);
    auto scales = blank<uint8_t>(rows() * width / 32);
    const View<uint8_t, 2> scale_view(scales.data(), rows(), width / 32);
    ops.quantize_mxfp4(exec, {View<uint8_t, 2>(codes.data(), rows(), width / 2), scale_view, view});
    codes.insert(codes.end(), scales.begin(), scales.end());
    return codes;
  });
  expect_equal([&](Exec& exec, const OpTable& ops) {
    const int64_t bytes = kv_record_bytes(KvFormat::kFp8, width);
    auto records = blank<uint8_t>(rows() * bytes);
    ops.window_records(exec, {View<uint8_t, 2>(records.data(), rows(), bytes), view});
    return records;
  });
}

TEST_P(RowsOnCpu, MixStreamsLikeTheReference) {
  for (const int64_t streams : {1, 3, 4}) {
    RandomRows random(3);
    const auto h = random.bf16s(rows() * streams * width());
    const auto y = random.bf16s(rows() * width());
    const auto a = random.floats(rows() * streams);
    const auto comb = random.floats(rows() * streams * streams);
    const View<const bf16, 3> h_view(h.data(), rows(), streams, width());
    const View<const float, 2> a_view(a.data(), rows(), streams);
    expect_equal([&](Exec& exec, const OpTable& ops) {
      auto x = blank<bf16>(rows() * width());
      ops.mhc_collapse(exec, {View<bf16, 2>(x.data(), rows(), width()), h_view, a_view});
      return x;
    });
    expect_equal([&](Exec& exec, const OpTable& ops) {
      auto out = blank<bf16>(rows() * streams * width());
      ops.mhc_expand(
          exec,
          {.h_out = View<bf16, 3>(out.data(), rows(), streams, width()),
           .y = View<const bf16, 2>(y.data(), rows(), width()),
           .h = h_view,
           .post = a_view,
           .comb = View<const float, 3>(comb.data(), rows(), streams, streams)}
      );
      return out;
    });
  }
}

TEST_P(RowsOnCpu, GateEngramLikeTheReference) {
  constexpr int64_t kStreams = 4;
  RandomRows random(4);
  const auto h = random.bf16s(rows() * kStreams * width());
  const auto kv = random.bf16s(rows() * (kStreams + 1) * width());
  const auto q = random.bf16s(kStreams * width());
  const auto k = random.bf16s(kStreams * width());
  auto is_image = blank<uint8_t>(rows());
  is_image.back() = 1;
  expect_equal([&](Exec& exec, const OpTable& ops) {
    auto out = h;
    auto gate = blank<float>(rows() * kStreams);
    ops.engram_gate(
        exec,
        {.h = View<bf16, 3>(out.data(), rows(), kStreams, width()),
         .kv = View<const bf16, 2>(kv.data(), rows(), (kStreams + 1) * width()),
         .q_weight = View<const bf16, 2>(q.data(), kStreams, width()),
         .k_weight = View<const bf16, 2>(k.data(), kStreams, width()),
         .is_image = View<const uint8_t, 1>(is_image.data(), rows()),
         .gate = View<float, 2>(gate.data(), rows(), kStreams)}
    );
    return std::pair(out, gate);
  });
}

TEST_P(RowsOnCpu, ActivateLikeTheReference) {
  RandomRows random(5);
  const auto gate = random.bf16s(rows() * width());
  const auto up = random.bf16s(rows() * width());
  const auto weights = random.floats(rows());
  for (const bool routed : {false, true}) {
    expect_equal([&](Exec& exec, const OpTable& ops) {
      auto u = blank<bf16>(rows() * width());
      ops.swiglu(
          exec,
          {.u = View<bf16, 2>(u.data(), rows(), width()),
           .gate = View<const bf16, 2>(gate.data(), rows(), width()),
           .up = View<const bf16, 2>(up.data(), rows(), width()),
           .weights = View<const float, 1>(weights.data(), routed ? rows() : 0),
           .limit = 10.0f}
      );
      return u;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    RowsOnCpu,
    testing::Values(
        std::pair<int64_t, int64_t>{1, 5120},
        std::pair<int64_t, int64_t>{7, 128},
        std::pair<int64_t, int64_t>{3, 96},
        std::pair<int64_t, int64_t>{2, 44}
    )
);

TEST(RopeOnCpu, RotatesLikeTheReferenceBothWays) {
  for (const int64_t pairs : {32, 8, 5}) {
    constexpr int64_t kRows = 5, kHeads = 3;
    const int64_t dim = 2 * pairs + 6;
    RandomRows random(6);
    const auto x = random.bf16s(kRows * kHeads * dim);
    const std::vector<int64_t> positions = {0, 1, 127, 65537, 1048575};
    std::vector<float> frequencies;
    for (int64_t i = 0; i < pairs; ++i)
      frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs)));
    for (const bool inverse : {false, true}) {
      expect_equal([&](Exec& exec, const OpTable& ops) {
        auto y = x;
        ops.rope(
            exec,
            {.x = View<bf16, 3>(y.data(), kRows, kHeads, dim),
             .positions = View<const int64_t, 1>(positions.data(), kRows),
             .frequencies = View<const float, 1>(frequencies.data(), pairs),
             .inverse = inverse}
        );
        return y;
      });
    }
  }
}

TEST(EngramOnCpu, LooksUpLikeTheReference) {
  constexpr int64_t kTableRows = 16, kDim = 256;
  std::vector<uint8_t> codes(kTableRows * kDim);
  std::vector<uint8_t> scales(kTableRows * kDim / 32);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = (i & 0x7f) == 0x7f ? 0 : static_cast<uint8_t>(i);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<uint8_t>(i * 2);
  const std::vector<int64_t> ids = {3, 15, 0, 7, 7, 9};
  expect_equal([&](Exec& exec, const OpTable& ops) {
    auto y = blank<bf16>(std::ssize(ids) * kDim);
    ops.engram_lookup(
        exec,
        {.y = View<bf16, 2>(y.data(), 2, 3 * kDim),
         .ids = View<const int64_t, 2>(ids.data(), 2, 3),
         .table = {codes.data(), scales.data(), kTableRows, kDim}}
    );
    return y;
  });
}

// Every exponential that attention can ask for, to within a step of 61 fp32 values: a softmax whose
// maximum rises from x to 0 reports exp(x) as its decay.
TEST(ExpOnCpu, EqualsTheCanonicalExponential) {
  constexpr uint32_t kStep = 61;
  const float logits[kHeadGroup] = {};
  for (const Isa isa : runnable()) {
    for (uint32_t bits = 0x80000000u; bits < std::bit_cast<uint32_t>(-1e5f);) {
      SoftmaxState state;
      for (float& top : state.top) {
        top = std::bit_cast<float>(bits);
        bits += kStep;
      }
      std::fill_n(state.denominator, kHeadGroup, 0.0f);
      const SoftmaxState before = state;
      double p[kHeadGroup];
      float decay[kHeadGroup];
      attention_of(isa).softmax({logits, 1, &state, p, decay});
      for (int64_t lane = 0; lane < kHeadGroup; ++lane)
        ASSERT_EQ(decay[lane], exp_f32(before.top[lane])) << before.top[lane];
    }
  }
}

// Every finite bf16 as a gate.
TEST(SiluOnCpu, EqualsTheCanonicalSilu) {
  std::vector<uint16_t> gates;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) != 0x7f80) gates.push_back(static_cast<uint16_t>(bits));
  }
  const std::vector<uint16_t> ups(gates.size(), 0x3f80);
  const auto width = std::ssize(gates);
  for (const Isa isa : runnable()) {
    std::vector<uint16_t> u(gates.size());
    rows_of(isa).swiglu({u.data(), gates.data(), ups.data(), nullptr, 1e30f, width});
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const float gate = std::min(to_float(bf16{gates[i]}), 1e30f);
      ASSERT_EQ(u[i], to_bf16(silu_f32(gate)).bits) << gate;
    }
  }
}

}  // namespace
}  // namespace di::ops::cpu
