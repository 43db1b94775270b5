#include "sched/cost_fits.h"

#include <algorithm>

namespace di::sched {
namespace {

constexpr double kLineKeep = 63.0 / 64;
constexpr double kPlaneKeep = 255.0 / 256;
constexpr double kRidge = 1e-3;     // of the squares: like observations give no slope
constexpr double kNothing = 1e-30;  // keeps sums of nothing from being divided by

}  // namespace

void FadingLine::add(double n, double y, double evidence) {
  for (double* sum : {&weight_, &n_, &nn_, &y_, &ny_})
    *sum *= kLineKeep;
  weight_ += evidence;
  n_ += evidence * n;
  nn_ += evidence * n * n;
  y_ += evidence * y;
  ny_ += evidence * n * y;
}

double FadingLine::each() const {
  if (weight_ <= 0 || n_ <= 0) return 0;
  const double slope = (ny_ - n_ * y_ / weight_) / (nn_ - n_ * n_ / weight_ + kRidge * nn_);
  return std::clamp(slope, 0.0, y_ / n_);
}

double FadingLine::base() const {
  return weight_ > 0 ? std::max(0.0, (y_ - each() * n_) / weight_) : 0;
}

void FadingPlane::add(double u, double v, double y) {
  for (double* sum : {&uu_, &uv_, &vv_, &uy_, &vy_})
    *sum *= kPlaneKeep;
  uu_ += u * u;
  uv_ += u * v;
  vv_ += v * v;
  uy_ += u * y;
  vy_ += v * y;
}

FadingPlane::Slopes FadingPlane::slopes(double doubt_u, double doubt_v) const {
  const double uu = uu_ * (1 + kRidge) + doubt_u + kNothing;
  const double vv = vv_ * (1 + kRidge) + doubt_v + kNothing;
  const double alone = 1 - uv_ * uv_ / (uu * vv);  // above 0
  Slopes found{(uy_ - vy_ * uv_ / vv) / (uu * alone), (vy_ - uy_ * uv_ / uu) / (vv * alone)};
  if (found.u < 0) found = {0, vy_ / vv};
  if (found.v < 0) found = {uy_ / uu, 0};
  return {std::max(found.u, 0.0), std::max(found.v, 0.0)};
}

}  // namespace di::sched
