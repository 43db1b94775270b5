#include "sampling/row_kernels.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "sampling/fixed_exp.h"

namespace di::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Sizes around every register, block and chunk.
const std::size_t kSizes[] = {1, 2, 7, 15, 16, 17, 127, 128, 129, 1000, 4095, 4096, 4097, 12901};

std::vector<float> random_row(std::size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> row(size);
  for (float& logit : row)
    logit = random() % 50 == 0 ? -kInfinity : std::round(normal(random) * 64) / 64;
  row[size / 2] = 3;
  return row;
}

TEST(RowKernels, GiveTheSameBitsOnEveryInstructionSet) {
  const RowKernels& plain = *usable_row_kernels().front();
  for (const RowKernels* kernels : usable_row_kernels()) {
    SCOPED_TRACE(kernels->name);
    for (const std::size_t size : kSizes) {
      const std::vector<float> row = random_row(size, size);
      const std::vector<double> wide(row.begin(), row.end());
      const Peak peak = kernels->peak_of_floats(row.data(), size);
      const MassScale scale{peak.value, 1 / 0.7};
      const auto floor = static_cast<uint64_t>(kUnitMass / 1000);
      const Masses masses = kernels->weigh(wide.data(), size, scale, floor);
      const Masses expected = plain.weigh(wide.data(), size, scale, floor);
      EXPECT_EQ(masses.all, expected.all);
      EXPECT_EQ(masses.above_floor, expected.above_floor);
      EXPECT_EQ(
          std::bit_cast<uint64_t>(kernels->sum_exp(row.data(), size, peak.value)),
          std::bit_cast<uint64_t>(plain.sum_exp(row.data(), size, peak.value))
      );
    }
  }
}

TEST(RowKernels, FindTheFirstOfTheBestEntries) {
  for (const RowKernels* kernels : usable_row_kernels()) {
    SCOPED_TRACE(kernels->name);
    for (const std::size_t size : kSizes) {
      const std::vector<float> row = random_row(size, size + 1);
      const auto best = std::max_element(row.begin(), row.end());
      const std::vector<double> wide(row.begin(), row.end());
      const Peak floats = kernels->peak_of_floats(row.data(), size);
      const Peak doubles = kernels->peak_of_doubles(wide.data(), size);
      EXPECT_TRUE(floats.usable && doubles.usable);
      EXPECT_EQ(floats.index, static_cast<std::size_t>(best - row.begin()));
      EXPECT_EQ(doubles.index, floats.index);
      EXPECT_EQ(floats.value, static_cast<double>(*best));
    }
  }
}

TEST(RowKernels, NoticeANanOrInfinityAnywhere) {
  for (const RowKernels* kernels : usable_row_kernels()) {
    SCOPED_TRACE(kernels->name);
    for (const std::size_t size : kSizes) {
      for (const std::size_t at : {std::size_t{0}, size / 3, size - 1}) {
        for (const float bad : {kNan, -kNan, kInfinity}) {
          std::vector<float> row = random_row(size, 3);
          row[at] = bad;
          EXPECT_FALSE(kernels->peak_of_floats(row.data(), size).usable) << size << " " << at;
        }
      }
      const std::vector<float> nothing(size, -kInfinity);
      EXPECT_FALSE(kernels->peak_of_floats(nothing.data(), size).usable);
    }
  }
}

TEST(RowKernels, GatherTheTokensOfABandInOrder) {
  for (const RowKernels* kernels : usable_row_kernels()) {
    SCOPED_TRACE(kernels->name);
    for (const std::size_t size : kSizes) {
      const std::vector<float> row = random_row(size, size + 2);
      const std::vector<double> wide(row.begin(), row.end());
      const MassScale scale{kernels->peak_of_doubles(wide.data(), size).value, 0.5};
      std::vector<int32_t> expected;
      for (std::size_t i = 0; i < size; ++i) {
        const double x = scale.distance(wide[i]);
        if (x >= 1 && x < 4) expected.push_back(static_cast<int32_t>(i));
      }
      std::vector<int32_t> found(size);
      found.resize(kernels->gather(wide.data(), size, scale, {1, 4}, found.data()));
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(FixedExp, AgreesWithLibmToTwoUnits) {
  EXPECT_EQ(exp_of_minus(0), 1);
  for (int i = 0; i < 200000; ++i) {
    const double x = i * 0.0031;
    const double expected = std::exp(-x);
    EXPECT_NEAR(exp_of_minus(x) / expected, 1, 0x1p-51) << x;
  }
}

TEST(FixedExp, GivesTheBestTokenTheUnitMassAndFarOnesNone) {
  EXPECT_EQ(mass_of(0), static_cast<uint64_t>(kUnitMass));
  EXPECT_EQ(mass_of(std::log(2)), static_cast<uint64_t>(kUnitMass / 2));
  EXPECT_EQ(mass_of(32), 0U);
  EXPECT_EQ(mass_of(std::numeric_limits<double>::infinity()), 0U);
}

}  // namespace
}  // namespace di::sampling
