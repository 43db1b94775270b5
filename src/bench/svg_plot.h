// Line plots as SVG, for the pages of results: readable in light and dark, no font or script
// needed.
#pragma once

#include <string>
#include <vector>

namespace di::bench {

/// One measured point.
struct PlotPoint {
  double x = 0;
  double y = 0;
  std::string label = {};  ///< beside the point; empty: none
};

/// Points joined by a line, in this order.
struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
};

/// One panel. Both axes begin at 0 and end at a tick beyond the largest value; values are 0 or
/// more.
struct Plot {
  std::string title;
  std::string x_axis;  ///< quantity and unit
  std::string y_axis;
  std::vector<PlotSeries> series;
};

/// Values at which to draw ticks of an axis from 0 to at least `most`: about five, at multiples of
/// 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double most);

/// A document with the panels below one another. Every point is a <circle> with its values in a
/// <title>; points that are not finite are left out.
std::string svg_document(const std::vector<Plot>& plots);

}  // namespace di::bench
