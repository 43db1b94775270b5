// Least squares over recent steps, for the small terms of what a step costs.
#pragma once

namespace di::sched {

/// y = base + each · n, both at least 0. Older observations fade with a half-life of 44.
class FadingLine {
 public:
  void add(double n, double y, double evidence);

  /// How much was observed, faded; 0: nothing, and the line is 0.
  double weight() const { return weight_; }
  double base() const;
  double each() const;

 private:
  double weight_ = 0, n_ = 0, nn_ = 0, y_ = 0, ny_ = 0;
};

/// y = a · u + b · v, both slopes at least 0. Older observations fade with a half-life of 177. A
/// slope is drawn to 0 by `doubt`: as if so large a sum of squares had been seen with y = 0.
class FadingPlane {
 public:
  struct Slopes {
    double u = 0;
    double v = 0;
  };

  void add(double u, double v, double y);
  Slopes slopes(double doubt_u, double doubt_v) const;

 private:
  double uu_ = 0, uv_ = 0, vv_ = 0, uy_ = 0, vy_ = 0;
};

}  // namespace di::sched
