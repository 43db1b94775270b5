#include "sched/cost_curve.h"

#include <algorithm>
#include <cstddef>

namespace di::sched {
namespace {

using Point = RowCosts::Point;

/// Seconds a row from one point to another; 0 when they are the same.
double slope(const Point& a, const Point& b) {
  return a.rows < b.rows ? (b.seconds - a.seconds) / static_cast<double>(b.rows - a.rows) : 0;
}

Point beyond(std::span<const Point> points) {
  const Point& last = points.back();
  std::size_t octave = points.size() - 1;
  while (octave > 0 && 2 * points[octave].rows > last.rows)
    --octave;
  const std::size_t before = points.size() > 1 ? points.size() - 2 : 0;
  const double more = std::min(slope(points[octave], last), slope(points[before], last));
  return {2 * last.rows, last.seconds + more * static_cast<double>(last.rows)};
}

}  // namespace

std::vector<Point> rising_curve(std::span<const WeighedPoint> points) {
  struct Block {
    double seconds, weight;
    std::size_t size;
  };
  std::vector<Block> blocks;
  for (const WeighedPoint& next : points) {
    blocks.push_back({next.point.seconds, next.weight, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].seconds > blocks.back().seconds) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      const double weight = into.weight + last.weight;
      into.seconds += last.weight / weight * (last.seconds - into.seconds);
      into.weight = weight;
      into.size += last.size;
    }
  }
  std::vector<Point> curve;
  for (const Block& block : blocks) {
    for (std::size_t j = 0; j < block.size; ++j)
      curve.push_back({points[curve.size()].point.rows, block.seconds});
  }
  curve.push_back(beyond(curve));
  return curve;
}

std::vector<Point> convex_curve(std::span<const Point> points) {
  std::vector<Point> corners;
  for (const Point& next : points) {
    while (corners.size() > 1 &&
           slope(corners[corners.size() - 2], corners.back()) >= slope(corners.back(), next))
      corners.pop_back();
    corners.push_back(next);
  }
  return corners;
}

}  // namespace di::sched
