// The cpu linears against the reference, bit for bit, on every instruction set of this processor.
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cpu/testing.h"
#include "ops/ops.h"

namespace di::ops {
namespace {

using cpu::testing::isas;
using cpu::testing::PackedWeight;
using cpu::testing::random_bf16;
using cpu::testing::random_q8;
using cpu::testing::random_weight;
using cpu::testing::same_bits;

struct Shape {
  int64_t rows, n, k;
};

class LinearTest : public testing::TestWithParam<Isa> {
 protected:
  std::mt19937 random_{7};

  void expect_q8_equal(WeightFormat format, Shape shape, int threads) {
    const auto raw = random_weight(random_, format, shape.n, shape.k);
    const auto x = random_q8(random_, shape.rows, shape.k);
    std::vector<bf16> expected(static_cast<std::size_t>(shape.rows * shape.n));
    std::vector<bf16> found(expected.size());
    ThreadPool pool(threads);
    Arena scratch;
    Exec exec{pool, scratch};
    const OpTable& cpu = cpu_ops(GetParam());
    const PackedWeight packed(cpu, raw.weight());
    ref_ops().linear_q8(
        exec, {View<bf16, 2>(expected.data(), shape.rows, shape.n), x.view(), raw.weight()}
    );
    cpu.linear_q8(
        exec, {View<bf16, 2>(found.data(), shape.rows, shape.n), x.view(), packed.weight()}
    );
    EXPECT_TRUE(same_bits(expected, found))
        << shape.rows << " rows, " << shape.n << " x " << shape.k << ", threads " << threads;
  }

  void expect_linear_equal(WeightFormat format, Shape shape, int64_t groups, bool f32) {
    const auto raw = random_weight(random_, format, shape.n, shape.k);
    const auto x = random_bf16(random_, shape.rows * groups * shape.k);
    const auto size = static_cast<std::size_t>(shape.rows * shape.n);
    std::vector<bf16> expected(size), found(size);
    std::vector<float> expected_f32(size), found_f32(size);
    ThreadPool pool(2);
    Arena scratch;
    Exec exec{pool, scratch};
    const OpTable& cpu = cpu_ops(GetParam());
    const PackedWeight packed(cpu, raw.weight());
    const auto run =
        [&](const OpTable& ops, std::vector<bf16>& y, std::vector<float>& y_f32, const Weight& w) {
          Linear op{
              .y = View<bf16, 2>(y.data(), shape.rows, shape.n),
              .y_f32 = {},
              .x = View<const bf16, 2>(x.data(), shape.rows, groups * shape.k),
              .w = w,
              .groups = groups};
          if (f32) op.y_f32 = View<float, 2>(y_f32.data(), shape.rows, shape.n);
          ops.linear(exec, op);
        };
    run(ref_ops(), expected, expected_f32, raw.weight());
    run(cpu, found, found_f32, packed.weight());
    EXPECT_TRUE(same_bits(expected, found) && same_bits(expected_f32, found_f32))
        << shape.rows << " rows, " << shape.n << " x " << shape.k << ", groups " << groups;
  }
};

TEST_P(LinearTest, QuantisedLinearsEqualTheReferenceBitForBit) {
  for (const WeightFormat format : {WeightFormat::kFp4, WeightFormat::kFp8}) {
    for (int64_t rows = 1; rows <= 40; ++rows)
      expect_q8_equal(format, {rows, 40, 96}, 1 + static_cast<int>(rows % 3));
    for (const int64_t n : {1, 15, 16, 17, 31, 33, 64, 100})
      expect_q8_equal(format, {3, n, 160}, 2);
    for (const int64_t k : {32, 64, 512, 1056})
      expect_q8_equal(format, {5, 48, k}, 3);
    expect_q8_equal(format, {512, 24, 64}, 2);
  }
}

TEST_P(LinearTest, PlainLinearsEqualTheReferenceBitForBit) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kF32, WeightFormat::kFp8}) {
    for (int64_t rows = 1; rows <= 18; ++rows)
      expect_linear_equal(format, {rows, 40, 96}, 1, rows % 2 == 0);
    for (const int64_t n : {1, 15, 16, 17, 33})
      expect_linear_equal(format, {2, n, 131}, 1, true);
    expect_linear_equal(format, {300, 24, 32}, 1, false);
    expect_linear_equal(format, {5, 64, 64}, 2, false);
    expect_linear_equal(format, {5, 60, 64}, 3, true);
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa,
    LinearTest,
    testing::ValuesIn(isas()),
    [](const testing::TestParamInfo<Isa>& isa) { return std::string(name_of(isa.param)); }
);

}  // namespace
}  // namespace di::ops
