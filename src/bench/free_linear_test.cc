// The kernel to compare with computes the same products as ours, up to its rounding.
#include "bench/free_linear.h"

#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "bench/synthetic.h"

namespace di::bench {
namespace {

using ops::WeightFormat;

class FreeLinearTest : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(FreeLinearTest, AgreesWithTheLinearOfDoubles) {
  if (!has_free_linear()) GTEST_SKIP() << "no AVX-512 BF16 here";
  const ops::OpTable& table = ops::cpu_ops(Isa::kAvx512);
  ThreadPool pool(2);
  Arena scratch;
  ops::Exec exec{pool, scratch};
  std::mt19937 random(3);
  const int64_t n = 40, k = 192;
  const SyntheticWeight raw = synthetic_weight(random, GetParam(), n, k);
  const PackedCopies packed(table, raw, 1);
  for (const int64_t rows : {1, 2, 3, 7, 8, 33, 40}) {
    std::vector<bf16> x = synthetic_activations(random, rows * k);
    std::vector<uint8_t> codes(x.size()), scales(x.size() / ops::kScaleGroup);
    table.quantize_fp8(
        exec,
        {View<uint8_t, 2>(codes.data(), rows, k),
         View<uint8_t, 2>(scales.data(), rows, k / ops::kScaleGroup),
         View<const bf16, 2>(x.data(), rows, k)}
    );
    const ops::Q8View q8{
        View<const uint8_t, 2>(codes.data(), rows, k),
        View<const uint8_t, 2>(scales.data(), rows, k / ops::kScaleGroup)};
    std::vector<bf16> expected(static_cast<std::size_t>(rows * n));
    const View<bf16, 2> out(expected.data(), rows, n);
    if (GetParam() == WeightFormat::kBf16) {
      const View<const bf16, 2> in(x.data(), rows, k);
      table.linear(exec, {.y = out, .y_f32 = {}, .x = in, .w = packed[0]});
    } else {
      x = dequantised(q8);
      table.linear_q8(exec, {out, q8, packed[0]});
    }
    std::vector<bf16> y(expected.size());
    const auto order = rows % 2 == 0 ? SumOrder::kFree : SumOrder::kFixed;
    free_linear(exec, {y.data(), x.data(), rows, packed[0], order});
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(
          to_float(y[i]), to_float(expected[i]), 0.01 + std::fabs(to_float(expected[i])) / 64
      ) << rows
        << " rows, " << i;
  }
}

TEST_P(FreeLinearTest, InAFixedOrderHasTheSameBitsForARowInAnyBatch) {
  if (!has_free_linear()) GTEST_SKIP() << "no AVX-512 BF16 here";
  ThreadPool pool(1);
  Arena scratch;
  ops::Exec exec{pool, scratch};
  std::mt19937 random(4);
  const int64_t n = 32, k = 256, rows = 39;
  const SyntheticWeight raw = synthetic_weight(random, GetParam(), n, k);
  const PackedCopies packed(ops::cpu_ops(Isa::kAvx512), raw, 1);
  const std::vector<bf16> x = synthetic_activations(random, rows * k);
  std::vector<bf16> together(static_cast<std::size_t>(rows * n));
  free_linear(exec, {together.data(), x.data(), rows, packed[0], SumOrder::kFixed});
  std::vector<bf16> alone(static_cast<std::size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    free_linear(exec, {alone.data(), x.data() + row * k, 1, packed[0], SumOrder::kFixed});
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + row * n, alone.size() * sizeof(bf16)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats,
    FreeLinearTest,
    ::testing::Values(WeightFormat::kFp8, WeightFormat::kFp4, WeightFormat::kBf16)
);

}  // namespace
}  // namespace di::bench
