// Curves of costs: what makes them rise and convex keeps as much of the points as it can.
#include "sched/cost_curve.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "sched/cost_fits.h"

namespace di::sched {
namespace {

std::vector<WeighedPoint> random_points(std::mt19937& random) {
  std::vector<WeighedPoint> points;
  int64_t rows = 0;
  for (int i = static_cast<int>(random() % 8); i >= 0; --i) {
    rows += 1 + static_cast<int64_t>(random() % 5);
    const auto weight = static_cast<double>(1 + random() % 9);
    points.push_back({{rows, 1 + static_cast<double>(random() % 100)}, weight});
  }
  return points;
}

double distance(std::span<const WeighedPoint> points, std::span<const RowCosts::Point> curve) {
  double sum = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double miss = points[i].point.seconds - curve[i].seconds;
    sum += points[i].weight * miss * miss;
  }
  return sum;
}

TEST(CostCurve, RisingIsTheNearestThatRises) {
  std::mt19937 random(3);
  for (int run = 0; run < 300; ++run) {
    const std::vector<WeighedPoint> points = random_points(random);
    const std::vector<RowCosts::Point> curve = rising_curve(points);
    ASSERT_EQ(curve.size(), points.size() + 1);
    EXPECT_EQ(curve.back().rows, 2 * points.back().point.rows);
    for (std::size_t i = 1; i < curve.size(); ++i)
      EXPECT_GE(curve[i].seconds, curve[i - 1].seconds);
    for (int other = 0; other < 50; ++other) {
      std::vector<RowCosts::Point> changed = curve;
      for (RowCosts::Point& point : changed)
        point.seconds += static_cast<double>(random() % 21) / 10 - 1;
      for (std::size_t i = 1; i < changed.size(); ++i)
        changed[i].seconds = std::max(changed[i].seconds, changed[i - 1].seconds);
      EXPECT_GE(distance(points, changed) + 1e-9, distance(points, curve));
    }
  }
}

TEST(CostCurve, ConvexIsBelowAndTouches) {
  std::mt19937 random(4);
  for (int run = 0; run < 300; ++run) {
    std::vector<RowCosts::Point> points;
    for (const WeighedPoint& weighed : random_points(random))
      points.push_back(weighed.point);
    for (std::size_t i = 1; i < points.size(); ++i)
      points[i].seconds = std::max(points[i].seconds, points[i - 1].seconds);
    const RowCosts curve(convex_curve(points));
    double before = -1;
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_LE(curve.seconds(points[i].rows), points[i].seconds * (1 + 1e-12));
      if (i == 0) continue;
      const double slope = (curve.seconds(points[i].rows) - curve.seconds(points[i - 1].rows)) /
                           static_cast<double>(points[i].rows - points[i - 1].rows);
      EXPECT_GE(slope, before - 1e-9);
      before = slope;
    }
    EXPECT_DOUBLE_EQ(curve.seconds(points.front().rows), points.front().seconds);
    EXPECT_DOUBLE_EQ(curve.seconds(points.back().rows), points.back().seconds);
  }
}

TEST(CostFits, FindALineAndAPlane) {
  FadingLine line;
  FadingPlane plane;
  EXPECT_EQ(line.base() + line.each(), 0);
  EXPECT_EQ(plane.slopes(0, 0).u, 0);
  for (int i = 0; i < 1000; ++i) {
    const double u = i % 7, v = i % 5;
    line.add(u, 3 + 0.5 * u, 1);
    plane.add(u, v, 2 * u + 0.25 * v);
  }
  EXPECT_NEAR(line.base(), 3, 0.02);
  EXPECT_NEAR(line.each(), 0.5, 0.01);
  EXPECT_NEAR(plane.slopes(0, 0).u, 2, 0.01);
  EXPECT_NEAR(plane.slopes(0, 0).v, 0.25, 0.02);
  EXPECT_LT(plane.slopes(1e9, 1e9).u, 0.01);
}

TEST(CostFits, AreNeverNegative) {
  FadingLine line;
  FadingPlane plane;
  for (int i = 0; i < 1000; ++i) {
    line.add(i % 7, 10 - i % 7, 1);
    plane.add(i % 7, i % 5, i % 7 - 3 * (i % 5));
  }
  EXPECT_EQ(line.each(), 0);
  EXPECT_GE(line.base(), 0);
  EXPECT_EQ(plane.slopes(0, 0).v, 0);
  EXPECT_GE(plane.slopes(0, 0).u, 0);
}

}  // namespace
}  // namespace di::sched
