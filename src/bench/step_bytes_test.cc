// The model of bytes, against numbers worked out by hand.
#include "bench/step_bytes.h"

#include <gtest/gtest.h>

#include "config/known_models.h"

namespace di::bench {
namespace {

TEST(StepBytes, CountsDenseOnceExpertsByUnionAndCachesByRow) {
  const StepBytes bytes{
      .dense = 1000, .expert = 10, .cache = 3, .layers = 2, .experts = 8, .experts_per_token = 2};
  EXPECT_DOUBLE_EQ(bytes.expected_experts(1), 2);
  EXPECT_DOUBLE_EQ(bytes.expected_experts(2), 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(bytes.expected_experts(1000), 8, 1e-9);
  EXPECT_DOUBLE_EQ(bytes.of_step(1, 2), 1000 + 2 * 2 * 10 + 3);
  EXPECT_DOUBLE_EQ(bytes.of_step(4, 5), 1000 + 2 * 5 * 10 + 12);
  EXPECT_DOUBLE_EQ(bytes.permitted_gain(1, 2), 1);
  EXPECT_DOUBLE_EQ(bytes.permitted_gain(4, 5), 4 * 1043.0 / 1112.0);
}

TEST(StepBytes, OfTheReleasedShapeExcludeItsExperts) {
  const ModelConfig config = v41_flash_config();
  const double experts =
      static_cast<double>(config.num_hidden_layers * config.moe.n_routed_experts);
  const StepBytes bytes = step_bytes(config, 5e9 + experts * 1e6, 1e6, 0);
  EXPECT_NEAR(bytes.dense, 5e9, 1);
  EXPECT_GT(bytes.cache, 0);
  EXPECT_LT(bytes.cache, step_bytes(config, 5e9 + experts * 1e6, 1e6, 1000).cache);
  EXPECT_GT(bytes.permitted_gain(16, bytes.expected_experts(16)), 1);
}

}  // namespace
}  // namespace di::bench
