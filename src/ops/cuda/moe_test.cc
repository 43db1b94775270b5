// Router and gated activation on the device against the reference, bit for bit.
#include "ops/cuda/moe.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "ops/canonical.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda {
namespace {

using testing::DeviceArray;
using testing::Machine;

std::vector<float> normal(std::mt19937& random, int64_t count, float scale) {
  std::normal_distribution<float> values(0, scale);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result)
    value = values(random);
  return result;
}

std::vector<bf16> rounded(const std::vector<float>& values) {
  std::vector<bf16> result;
  for (const float value : values)
    result.push_back(to_bf16(value));
  return result;
}

template <class T>
void expect_same_bits(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  int64_t differing = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    differing += std::memcmp(&found[i], &expected[i], sizeof(T)) != 0;
  EXPECT_EQ(differing, 0) << "of " << found.size();
}

/// Operands of a router call, and its results on either side.
struct RouteCase {
  int64_t rows, experts, k;
  std::vector<float> logits, bias, bias_vl;
  std::vector<uint8_t> is_image;
  std::vector<int32_t> fixed_ids;

  RouteCase(std::mt19937& random, int64_t rows_, int64_t experts_, int64_t k_)
      : rows(rows_),
        experts(experts_),
        k(k_),
        logits(normal(random, rows * experts, 3)),
        bias(normal(random, experts, 0.5f)),
        bias_vl(normal(random, experts, 0.5f)) {
    for (int64_t row = 0; row < rows; ++row)
      is_image.push_back(random() % 3 == 0);
  }

  void run_reference(std::vector<int32_t>& ids, std::vector<float>& weights) {
    Machine machine;
    ids.resize(static_cast<std::size_t>(rows * k));
    weights.resize(ids.size());
    ref_ops().route(machine.host(), arguments(*this, ids.data(), weights.data()));
  }

  void run_device(std::vector<int32_t>& ids, std::vector<float>& weights) {
    Machine machine;
    const DeviceArray<float> device_logits(logits), device_bias(bias), device_bias_vl(bias_vl);
    const DeviceArray<uint8_t> device_is_image(is_image);
    const DeviceArray<int32_t> device_fixed(fixed_ids);
    const DeviceArray<int32_t> device_ids(rows * k);
    const DeviceArray<float> device_weights(rows * k);
    Route op = arguments(*this, device_ids.data(), device_weights.data());
    op.logits.data = device_logits.data();
    op.bias.data = bias.empty() ? nullptr : device_bias.data();
    op.bias_vl.data = bias_vl.empty() ? nullptr : device_bias_vl.data();
    op.is_image.data = is_image.empty() ? nullptr : device_is_image.data();
    op.fixed_ids.data = fixed_ids.empty() ? nullptr : device_fixed.data();
    route(machine.device(), op);
    ids = device_ids.read();
    weights = device_weights.read();
  }

  static Route arguments(const RouteCase& c, int32_t* ids, float* weights) {
    return {
        .ids = View<int32_t, 2>(ids, c.rows, c.k),
        .weights = View<float, 2>(weights, c.rows, c.k),
        .logits = View<const float, 2>(c.logits.data(), c.rows, c.experts),
        .bias = View<const float, 1>(c.bias.data(), std::ssize(c.bias)),
        .bias_vl = View<const float, 1>(c.bias_vl.data(), std::ssize(c.bias_vl)),
        .is_image = View<const uint8_t, 1>(c.is_image.data(), std::ssize(c.is_image)),
        .fixed_ids =
            View<const int32_t, 2>(c.fixed_ids.data(), c.fixed_ids.empty() ? 0 : c.rows, c.k),
        .route_scale = 2.5f};
  }

  void expect_equal() {
    std::vector<int32_t> ids, device_ids;
    std::vector<float> weights, device_weights;
    run_reference(ids, weights);
    run_device(device_ids, device_weights);
    expect_same_bits(device_ids, ids);
    expect_same_bits(device_weights, weights);
  }
};

TEST(CudaRouteTest, EqualsTheReference) {
  DI_NEEDS_GPU();
  std::mt19937 random(1);
  RouteCase(random, 700, 384, 6).expect_equal();
  RouteCase(random, 1, 384, 6).expect_equal();
  RouteCase(random, 33, 8, 3).expect_equal();
  RouteCase(random, 5, 5, 5).expect_equal();
}

TEST(CudaRouteTest, EqualsTheReferenceWithoutBiasAndImages) {
  DI_NEEDS_GPU();
  std::mt19937 random(2);
  RouteCase c(random, 40, 128, 3);
  c.bias.clear();
  c.bias_vl.clear();
  c.is_image.clear();
  c.expect_equal();
}

TEST(CudaRouteTest, PrefersTheLowerOfEqualExperts) {
  DI_NEEDS_GPU();
  std::mt19937 random(3);
  RouteCase c(random, 64, 100, 7);
  for (float& logit : c.logits)
    logit = std::round(logit);
  for (float& bias : c.bias)
    bias = -sqrt_softplus_f32(0);  // sums of both signs, and exact zeros
  c.bias_vl = c.bias;
  c.expect_equal();
}

TEST(CudaRouteTest, TakesFixedIds) {
  DI_NEEDS_GPU();
  std::mt19937 random(4);
  RouteCase c(random, 50, 16, 4);
  for (int64_t i = 0; i < c.rows * c.k; ++i)
    c.fixed_ids.push_back(static_cast<int32_t>(i % c.k * 4 + static_cast<int64_t>(random() % 4)));
  c.expect_equal();
}

TEST(CudaRouteTest, KeepsIdsInRangeWithoutNumbers) {
  DI_NEEDS_GPU();
  std::mt19937 random(5);
  RouteCase c(random, 3, 32, 6);
  std::fill_n(c.logits.begin() + 32, 32, std::numeric_limits<float>::quiet_NaN());
  std::vector<int32_t> ids, expected;
  std::vector<float> weights, unused;
  c.run_device(ids, weights);
  c.run_reference(expected, unused);
  for (const int64_t row : {0, 2})
    EXPECT_TRUE(std::equal(ids.begin() + row * 6, ids.begin() + row * 6 + 6, &expected[row * 6]));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ids[6 + i], i);
    EXPECT_TRUE(std::isnan(weights[6 + i]));
  }
}

TEST(CudaSwiGluTest, EqualsTheReference) {
  DI_NEEDS_GPU();
  std::mt19937 random(6);
  for (const bool routed : {true, false}) {
    constexpr int64_t kRows = 37;
    constexpr int64_t kInner = 2304;
    const std::vector<bf16> gate = rounded(normal(random, kRows * kInner, 5));
    const std::vector<bf16> up = rounded(normal(random, kRows * kInner, 5));
    const std::vector<float> weights = normal(random, routed ? kRows : 0, 1);
    std::vector<bf16> u(gate.size());
    SwiGlu op{
        .u = View<bf16, 2>(u.data(), kRows, kInner),
        .gate = View<const bf16, 2>(gate.data(), kRows, kInner),
        .up = View<const bf16, 2>(up.data(), kRows, kInner),
        .weights = View<const float, 1>(weights.data(), std::ssize(weights)),
        .limit = 10};
    Machine machine;
    ref_ops().swiglu(machine.host(), op);
    const DeviceArray<bf16> device_u(std::ssize(u)), device_gate(gate), device_up(up);
    const DeviceArray<float> device_weights(weights);
    op.u.data = device_u.data();
    op.gate.data = device_gate.data();
    op.up.data = device_up.data();
    op.weights.data = routed ? device_weights.data() : nullptr;
    swiglu(machine.device(), op);
    expect_same_bits(device_u.read(), u);
  }
}

}  // namespace
}  // namespace di::ops::cuda
