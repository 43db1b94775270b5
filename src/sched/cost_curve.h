// Curves of seconds by rows, made of measured points.
#pragma once

#include <span>
#include <vector>

#include "sched/draft_budget.h"

namespace di::sched {

/// A measured point with its evidence.
struct WeighedPoint {
  RowCosts::Point point;
  double weight = 0;
};

/// The nearest curve that never falls: neighbours that fall are taken together, by weight. One more
/// point at twice the last rows goes on along the line of the last octave, or of the last two
/// points if that is flatter. `points`: at least one, ascending in rows.
std::vector<RowCosts::Point> rising_curve(std::span<const WeighedPoint> points);

/// The corners of the greatest convex curve below `points`, which ascend in rows.
std::vector<RowCosts::Point> convex_curve(std::span<const RowCosts::Point> points);

}  // namespace di::sched
