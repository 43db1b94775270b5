#include "sched/draft_costs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace di::sched {
namespace {

constexpr std::size_t kNumBins = 76;  // 1 to 8, then four an octave, to 2^20 rows
constexpr double kMostWeight = 32;    // steps that an average holds
constexpr double kKeptWeight = 8;     // of a table from a file
constexpr double kOutlier = 4;
constexpr int64_t kSettled = 16;  // steps before one can be an outlier
constexpr double kLevelRate = 1.0 / 32;
constexpr double kErrorRate = 1.0 / 32;
constexpr double kPlaneKeep = 255.0 / 256;
constexpr double kLineKeep = 63.0 / 64;
constexpr double kPrefillEvidence = 0.25;  // prompt rows cost a little else
constexpr double kUnknownSeconds = 1e-3;   // of a step before anything is known

constexpr std::array<int64_t, kNumBins> make_bin_rows() {
  std::array<int64_t, kNumBins> rows{};
  for (std::size_t i = 0; i < 8; ++i)
    rows[i] = static_cast<int64_t>(i) + 1;
  for (std::size_t i = 8; i < kNumBins; ++i)
    rows[i] = (int64_t{2} << ((i - 8) / 4)) * (5 + static_cast<int64_t>((i - 8) % 4));
  return rows;
}
constexpr std::array<int64_t, kNumBins> kBinRows = make_bin_rows();

std::size_t nearest_bin(int64_t rows) {
  const auto above = std::lower_bound(kBinRows.begin(), kBinRows.end(), rows);
  if (above == kBinRows.end()) return kNumBins - 1;
  const auto i = static_cast<std::size_t>(above - kBinRows.begin());
  return i > 0 && rows - kBinRows[i - 1] < kBinRows[i] - rows ? i - 1 : i;
}

double mix(double a, double b, double share) {
  return a + share * (b - a);
}

/// A point of the curve before it is made to rise.
struct Weighed {
  RowCosts::Point point;
  double weight;
};

/// Neighbours that fall are taken together, by weight: the nearest curve that never falls.
void make_rising(std::vector<Weighed>& curve) {
  struct Block {
    double seconds, weight;
    std::size_t size;
  };
  std::vector<Block> blocks;
  for (const Weighed& next : curve) {
    blocks.push_back({next.point.seconds, next.weight, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].seconds > blocks.back().seconds) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      const double weight = into.weight + last.weight;
      into = {mix(into.seconds, last.seconds, last.weight / weight), weight, into.size + last.size};
    }
  }
  std::size_t i = 0;
  for (const Block& block : blocks) {
    for (std::size_t j = 0; j < block.size; ++j)
      curve[i++].point.seconds = block.seconds;
  }
}

/// The point at twice the last rows, along the line of the last octave.
RowCosts::Point beyond(std::span<const Weighed> curve) {
  const RowCosts::Point& last = curve.back().point;
  const auto from = std::find_if(curve.begin(), curve.end() - 1, [&last](const Weighed& w) {
    return 2 * w.point.rows > last.rows;
  });
  const RowCosts::Point& base = (from == curve.begin() ? from : from - 1)->point;
  double slope = 0;
  if (base.rows < last.rows)
    slope = (last.seconds - base.seconds) / static_cast<double>(last.rows - base.rows);
  return {2 * last.rows, last.seconds + slope * static_cast<double>(last.rows)};
}

// Far above everything that a step can take or hold.
constexpr double kMostSeconds = 1e4;
constexpr double kMostPairs = 1e15;
constexpr double kMostExperts = 1e6;
constexpr double kMostEvidence = 1e9;

bool lies_within(double value, double most) {
  return value >= 0 && value <= most;
}

}  // namespace

double StepCosts::drafting(int64_t sequences) const {
  return sequences > 0 ? drafting_base + drafting_each * static_cast<double>(sequences) : 0;
}

StepLoad StepCosts::load(int64_t num_rows, int64_t num_drafting) const {
  return {num_rows, drafting(num_drafting)};
}

bool CostTable::is_sound() const {
  int64_t rows = 0;
  for (const Point& point : points) {
    if (point.rows <= rows || point.rows > kBinRows.back()) return false;
    if (!(point.seconds > 0 && point.weight > 0)) return false;
    if (!lies_within(point.seconds, kMostSeconds) || !lies_within(point.weight, kMostEvidence) ||
        !lies_within(point.key_pairs, kMostPairs) || !lies_within(point.experts, kMostExperts))
      return false;
    rows = point.rows;
  }
  return lies_within(seconds_per_pair, kMostSeconds) &&
         lies_within(seconds_per_expert, kMostSeconds) &&
         lies_within(drafting_base, kMostSeconds) && lies_within(drafting_each, kMostSeconds) &&
         lies_within(drafting_weight, kMostEvidence);
}

void DraftCosts::Line::add(double n_value, double y_value, double evidence) {
  for (double* sum : {&weight, &n, &nn, &y, &ny})
    *sum *= kLineKeep;
  weight += evidence;
  n += evidence * n_value;
  nn += evidence * n_value * n_value;
  y += evidence * y_value;
  ny += evidence * n_value * y_value;
}

double DraftCosts::Line::each() const {
  if (weight <= 0) return 0;
  const double spread = nn - n * n / weight;
  const double slope = (ny - n * y / weight) / (spread + 1e-3 * nn);
  return std::clamp(slope, 0.0, y / std::max(n, 1e-9));
}

double DraftCosts::Line::base() const {
  return weight > 0 ? std::max(0.0, (y - each() * n) / weight) : 0;
}

DraftCosts::DraftCosts() : bins_(kNumBins) {}

DraftCosts::DraftCosts(const CostTable& table) : DraftCosts() {
  DI_CHECK(table.is_sound(), "a table of costs is checked before it is used");
  for (const CostTable::Point& point : table.points) {
    const double weight = std::min(point.weight, kKeptWeight);
    bins_[nearest_bin(point.rows)] = {
        point.seconds, weight, weight, point.key_pairs, point.experts};
  }
  seconds_per_pair_ = table.seconds_per_pair;
  seconds_per_expert_ = table.seconds_per_expert;
  const double weight = std::min(table.drafting_weight, kKeptWeight) / 2;
  for (const double n : {1.0, 16.0}) {
    if (weight > 0) drafting_.add(n, table.drafting_base + n * table.drafting_each, weight);
  }
}

bool DraftCosts::is_empty() const {
  return std::none_of(bins_.begin(), bins_.end(), [](const Bin& bin) { return bin.weight > 0; });
}

void DraftCosts::observe(const StepShape& shape, const StepSeconds& seconds) {
  learn(shape, seconds, shape.prefill_rows > 0 ? kPrefillEvidence : 1);
}

void DraftCosts::observe_profile(const StepShape& shape, std::span<const StepSeconds> repeats) {
  if (repeats.empty()) return;
  const auto median = [&repeats](double StepSeconds::*part) {
    std::vector<double> values;
    for (const StepSeconds& repeat : repeats)
      values.push_back(repeat.*part);
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  const StepSeconds seconds{median(&StepSeconds::total), median(&StepSeconds::drafting)};
  learn(shape, seconds, static_cast<double>(repeats.size()));
}

void DraftCosts::learn(const StepShape& shape, const StepSeconds& measured, double evidence) {
  if (shape.rows <= 0 || !(measured.total > 0) || !std::isfinite(measured.total)) return;
  StepSeconds seconds = measured;
  const double before = expected(shape);
  const bool known = bins_[nearest_bin(shape.rows)].weight > 0;
  if (known && ++num_steps_ > kSettled) {
    seconds.total = std::min(seconds.total, kOutlier * before);
    relative_error_ += kErrorRate * (std::abs(seconds.total / before - 1) - relative_error_);
  }
  const double backbone = seconds.total - observe_drafting(shape, seconds, evidence);
  const Usual typical = usual(shape.rows);
  const double residual =
      std::max(backbone, 0.02 * seconds.total) - linear(shape, typical) - typical.seconds;
  if (known) observe_linear(shape, typical, residual);
  observe_rows(shape, residual, evidence);
  if (known && shape.prefill_rows == 0) observe_level(residual / typical.seconds);
}

// The seconds of drafting in a step. When they are unknown, what a step takes beyond the rows'
// seconds is taken for drafting, if these are known from steps without.
double DraftCosts::observe_drafting(
    const StepShape& shape, const StepSeconds& seconds, double evidence
) {
  if (shape.drafting <= 0) return 0;
  const auto n = static_cast<double>(shape.drafting);
  if (seconds.drafting > 0) {
    drafting_.add(n, std::min(seconds.drafting, seconds.total), evidence);
    return std::min(seconds.drafting, seconds.total);
  }
  if (bins_[nearest_bin(shape.rows)].clean >= 2) {
    const Usual typical = usual(shape.rows);
    const double rest = seconds.total - typical.seconds - linear(shape, typical);
    drafting_.add(n, std::clamp(rest, 0.0, 0.9 * seconds.total), evidence);
  }
  return std::min(drafting_.base() + drafting_.each() * n, 0.9 * seconds.total);
}

DraftCosts::Usual DraftCosts::usual(int64_t rows) const {
  const auto knows = [this](std::size_t i) { return bins_[i].weight > 0; };
  std::size_t high = 0;
  while (high < kNumBins && (kBinRows[high] < rows || !knows(high)))
    ++high;
  std::size_t low = std::min(high, kNumBins - 1) + 1;
  while (low > 0 && (kBinRows[low - 1] > rows || !knows(low - 1)))
    --low;
  if (low == 0 && high == kNumBins) return {};
  const Bin& a = bins_[low > 0 ? low - 1 : high];
  const Bin& b = bins_[high < kNumBins ? high : low - 1];
  const double share = low > 0 && high < kNumBins && high != low - 1
                           ? static_cast<double>(rows - kBinRows[low - 1]) /
                                 static_cast<double>(kBinRows[high] - kBinRows[low - 1])
                           : 0;
  const bool experts = a.experts > 0 && b.experts > 0;
  return {
      mix(a.seconds, b.seconds, share),
      mix(a.key_pairs, b.key_pairs, share),
      experts ? mix(a.experts, b.experts, share) : 0};
}

double DraftCosts::linear(const StepShape& shape, const Usual& usual) const {
  double seconds = 0;
  if (shape.key_pairs > 0)
    seconds += seconds_per_pair_ * (static_cast<double>(shape.key_pairs) - usual.key_pairs);
  if (shape.experts > 0 && usual.experts > 0)
    seconds += seconds_per_expert_ * (shape.experts - usual.experts);
  return std::clamp(seconds, -0.5 * usual.seconds, 8 * usual.seconds);
}

void DraftCosts::observe_linear(const StepShape& shape, const Usual& usual, double residual) {
  const double scale = 1 / usual.seconds;
  const double p =
      shape.key_pairs > 0 ? scale * (static_cast<double>(shape.key_pairs) - usual.key_pairs) : 0;
  const double e =
      shape.experts > 0 && usual.experts > 0 ? scale * (shape.experts - usual.experts) : 0;
  const double y = scale * residual + seconds_per_pair_ * p + seconds_per_expert_ * e;
  for (double* sum : {&plane_.pp, &plane_.pe, &plane_.ee, &plane_.py, &plane_.ey})
    *sum *= kPlaneKeep;
  plane_.pp += p * p;
  plane_.pe += p * e;
  plane_.ee += e * e;
  plane_.py += p * y;
  plane_.ey += e * y;
  if (usual.experts > 0 && shape.experts > 0)
    expert_ratio_ += (shape.experts / usual.experts - expert_ratio_) / kMostWeight;

  // A spread of a twentieth over 32 steps is where a slope begins to be believed.
  const double doubt = kMostWeight * 0.05 * 0.05 * scale * scale;
  const double pp = plane_.pp + doubt * usual.key_pairs * usual.key_pairs + 1e-30;
  const double ee = plane_.ee + doubt * usual.experts * usual.experts + 1e-30;
  const double determinant = pp * ee - plane_.pe * plane_.pe;
  double pairs = (plane_.py * ee - plane_.ey * plane_.pe) / determinant;
  double experts = (plane_.ey * pp - plane_.py * plane_.pe) / determinant;
  if (pairs < 0) experts = plane_.ey / ee;
  if (experts < 0) pairs = plane_.py / pp;
  seconds_per_pair_ = std::max(pairs, 0.0);
  seconds_per_expert_ = std::max(experts, 0.0);
}

void DraftCosts::observe_rows(const StepShape& shape, double residual, double evidence) {
  const std::size_t i = nearest_bin(shape.rows);
  Bin& bin = bins_[i];
  const bool fresh = bin.weight <= 0;
  if (fresh) {
    const Usual here = usual(kBinRows[i]);
    bin.seconds = here.seconds;
    bin.key_pairs = here.key_pairs;
  }
  const double rate = fresh ? 1 : std::max(evidence / (bin.weight + evidence), evidence / 64);
  bin.weight = std::min(bin.weight + evidence, kMostWeight);
  if (shape.drafting == 0) bin.clean = std::min(bin.clean + evidence, kMostWeight);
  bin.seconds += std::min(rate, 1.0) * residual;
  // What is usual moves, and the seconds with it along the slope.
  if (shape.key_pairs > 0) {
    const double moved =
        std::min(rate, 1.0) * (static_cast<double>(shape.key_pairs) - bin.key_pairs);
    bin.key_pairs += moved;
    bin.seconds += seconds_per_pair_ * moved;
  }
  if (shape.experts > 0) {
    const double moved = bin.experts > 0 ? std::min(rate, 1.0) * (shape.experts - bin.experts) : 0;
    bin.experts = bin.experts > 0 ? bin.experts + moved : shape.experts;
    bin.seconds += seconds_per_expert_ * moved;
  }
  bin.seconds = std::max(bin.seconds, 1e-9);
}

void DraftCosts::observe_level(double relative) {
  const double factor = 1 + kLevelRate * std::clamp(relative, -0.5, 0.5);
  for (Bin& bin : bins_)
    bin.seconds *= factor;
}

double DraftCosts::expected(const StepShape& shape) const {
  const Usual typical = usual(shape.rows);
  double seconds = typical.seconds + linear(shape, typical);
  if (shape.drafting > 0)
    seconds += drafting_.base() + drafting_.each() * static_cast<double>(shape.drafting);
  return seconds;
}

std::shared_ptr<const StepCosts> DraftCosts::costs_for(double keys_per_row) const {
  std::vector<Weighed> curve;
  for (std::size_t i = 0; i < kNumBins; ++i) {
    const Bin& bin = bins_[i];
    if (bin.weight <= 0) continue;
    StepShape shape{.rows = kBinRows[i], .experts = bin.experts * expert_ratio_};
    shape.key_pairs = static_cast<int64_t>(keys_per_row * static_cast<double>(shape.rows));
    const double seconds = bin.seconds + linear(shape, {bin.seconds, bin.key_pairs, bin.experts});
    curve.push_back({{shape.rows, seconds}, bin.weight});
  }
  std::vector<RowCosts::Point> points;
  if (curve.empty()) {
    points.push_back({1, kUnknownSeconds});
  } else {
    make_rising(curve);
    for (const Weighed& weighed : curve)
      points.push_back(weighed.point);
    points.push_back(beyond(curve));
  }
  return std::make_shared<const StepCosts>(StepCosts{
      RowCosts(points), drafting_.base(), drafting_.each()});
}

CostTable DraftCosts::table() const {
  CostTable table;
  for (std::size_t i = 0; i < kNumBins; ++i) {
    const Bin& bin = bins_[i];
    if (bin.weight > 0)
      table.points.push_back({kBinRows[i], bin.seconds, bin.weight, bin.key_pairs, bin.experts});
  }
  table.seconds_per_pair = seconds_per_pair_;
  table.seconds_per_expert = seconds_per_expert_;
  table.drafting_base = drafting_.base();
  table.drafting_each = drafting_.each();
  table.drafting_weight = drafting_.weight;
  return table;
}

}  // namespace di::sched
