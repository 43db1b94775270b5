#include "sched/draft_costs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "sched/cost_curve.h"

namespace di::sched {
namespace {

constexpr std::size_t kNumBins = 76;  // 1 to 8, then four an octave, to 2^20 rows
constexpr double kMostWeight = 32;    // steps that an average holds
constexpr double kLeastRate = 1.0 / 16;
constexpr double kKeptWeight = 8;  // of a table from a file
constexpr double kOutlier = 2;     // times what was expected
constexpr double kEarlyOutlier = 4;
constexpr double kSettledWeight = 4;
constexpr double kLevelWeight = 8;       // from which on a surprise is the machine's
constexpr double kFade = 1023.0 / 1024;  // of a weight in a step: what is long past is tried again
constexpr int64_t kNear = 8;             // times the rows
constexpr double kFastFade = 0.8;
constexpr double kSurpriseRate = 1.0 / 8;
constexpr double kSurprise = 0.25;
constexpr double kLevelRate = 1.0 / 32;
constexpr double kErrorRate = 1.0 / 32;
constexpr double kPrefillEvidence = 0.25;  // prompt rows cost a little else
constexpr double kDoubtedSpread = 0.05;    // of what is usual: what a slope is believed from
constexpr double kLeastSeconds = 1e-9;
constexpr double kUnknownSeconds = 1e-3;  // of a step before anything is known

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

// Far above everything that a step can take or hold.
constexpr double kMostSeconds = 1e4;
constexpr double kMostKeys = 1e12;
constexpr double kMostRise = 1;
constexpr double kMostExperts = 1e6;
constexpr double kMostEvidence = 1e9;

bool lies_within(double value, double most) {
  return value >= 0 && value <= most;
}

/// A shape without what no step can have: that is unknown.
StepShape possible(StepShape shape) {
  if (!lies_within(shape.keys(), kMostKeys)) shape.key_pairs = 0;
  if (!lies_within(shape.experts, kMostExperts)) shape.experts = 0;
  return shape;
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
        !lies_within(point.keys, kMostKeys) || !lies_within(point.experts, kMostExperts))
      return false;
    rows = point.rows;
  }
  return lies_within(rise_per_key, kMostRise) && lies_within(seconds_per_expert, kMostSeconds) &&
         lies_within(drafting_base, kMostSeconds) && lies_within(drafting_each, kMostSeconds) &&
         lies_within(drafting_weight, kMostEvidence);
}

DraftCosts::DraftCosts() : bins_(kNumBins) {}

DraftCosts::DraftCosts(const CostTable& table) : DraftCosts() {
  DI_CHECK(table.is_sound(), "a table of costs is checked before it is used");
  for (const CostTable::Point& point : table.points) {
    const double weight = std::min(point.weight, kKeptWeight);
    bins_[nearest_bin(point.rows)] = {point.seconds, weight, weight, point.keys, point.experts};
  }
  rise_per_key_ = table.rise_per_key;
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

void DraftCosts::learn(const StepShape& told, const StepSeconds& measured, double evidence) {
  if (told.rows <= 0 || !(measured.total > 0 && measured.total <= kMostSeconds)) return;
  const StepShape shape = possible(told);
  StepSeconds seconds{plausible(shape, measured.total)};
  if (lies_within(measured.drafting, seconds.total)) seconds.drafting = measured.drafting;
  const double weight = bins_[nearest_bin(shape.rows)].weight;
  const bool known = weight > 0;
  if (weight >= kSettledWeight) {
    const double error = std::abs(seconds.total / expected(shape) - 1);
    relative_error_ += kErrorRate * (error - relative_error_);
  }
  const double drafting = observe_drafting(shape, seconds, evidence);
  const double backbone = std::max(seconds.total - drafting, 0.02 * seconds.total);
  const Usual typical = usual(shape.rows);
  const double residual = backbone - linear(shape, typical) - typical.seconds;
  if (known) observe_linear(shape, typical, residual, backbone);
  observe_rows(shape, residual, evidence);
  if (weight >= kLevelWeight && shape.prefill_rows == 0)
    observe_level(shape.rows, residual / typical.seconds);
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
  return std::min(drafting(shape.drafting), 0.9 * seconds.total);
}

DraftCosts::Usual DraftCosts::usual(int64_t rows) const {
  constexpr std::size_t kNone = kNumBins;
  std::size_t low = kNone, high = kNone;  // the known bins around
  for (std::size_t i = 0; i < kNumBins && high == kNone; ++i) {
    if (bins_[i].weight <= 0) continue;
    if (kBinRows[i] <= rows) low = i;
    if (kBinRows[i] >= rows) high = i;
  }
  if (low == kNone) low = high;
  if (high == kNone) high = low;
  if (low == kNone) return {};
  const Bin& a = bins_[low];
  const Bin& b = bins_[high];
  const double share = low == high ? 0
                                   : static_cast<double>(rows - kBinRows[low]) /
                                         static_cast<double>(kBinRows[high] - kBinRows[low]);
  return {
      mix(a.seconds, b.seconds, share),
      mix(a.keys, b.keys, share),
      a.experts > 0 && b.experts > 0 ? mix(a.experts, b.experts, share) : 0};
}

double DraftCosts::linear(const StepShape& shape, const Usual& usual) const {
  double seconds = 0;
  if (shape.key_pairs > 0) seconds += usual.seconds * rise_per_key_ * (shape.keys() - usual.keys);
  if (shape.experts > 0 && usual.experts > 0)
    seconds += seconds_per_expert_ * (shape.experts - usual.experts);
  return std::clamp(seconds, -0.5 * usual.seconds, 8 * usual.seconds);
}

void DraftCosts::observe_linear(
    const StepShape& shape, const Usual& usual, double residual, double seconds
) {
  const bool experts = shape.experts > 0 && usual.experts > 0;
  if (experts) expert_ratio_ += (shape.experts / usual.experts - expert_ratio_) / kMostWeight;
  // Everything as a share of the step, so that long ones do not outweigh the others.
  const double keys = shape.key_pairs > 0 ? shape.keys() : usual.keys;
  const double k = (keys - usual.keys) * usual.seconds / seconds;
  const double e = experts ? (shape.experts - usual.experts) / seconds : 0;
  beyond_usual_.add(k, e, residual / seconds + rise_per_key_ * k + seconds_per_expert_ * e);

  const auto doubt = [](double usually) {
    const double spread = kDoubtedSpread * usually;
    return kMostWeight * spread * spread;
  };
  const FadingPlane::Slopes slopes =
      beyond_usual_.slopes(doubt(usual.keys), doubt(usual.experts / seconds));
  // Neither can be more than the whole step.
  const double most_experts = std::max(shape.experts, usual.experts);
  rise_per_key_ = std::min(slopes.u, 1 / std::max({keys, usual.keys, 1.0}));
  seconds_per_expert_ = std::min(slopes.v, seconds / std::max(most_experts, 1.0));
}

void DraftCosts::observe_rows(const StepShape& shape, double residual, double evidence) {
  const std::size_t i = nearest_bin(shape.rows);
  Bin& bin = bins_[i];
  double rate = 1;
  if (bin.weight > 0) {
    rate = std::min(1.0, std::max(evidence / (bin.weight + evidence), evidence * kLeastRate));
  } else {
    const Usual here = usual(kBinRows[i]);
    bin.seconds = here.seconds;
    bin.keys = here.keys;
  }
  bin.weight = std::min(bin.weight + evidence, kMostWeight);
  if (shape.drafting == 0) bin.clean = std::min(bin.clean + evidence, kMostWeight);
  bin.seconds += rate * residual;
  // What is usual moves, and the seconds with it along the slope.
  if (shape.key_pairs > 0) {
    const double moved = rate * (shape.keys() - bin.keys);
    bin.keys += moved;
    bin.seconds *= std::clamp(1 + rise_per_key_ * moved, 0.5, 2.0);
  }
  if (shape.experts > 0 && bin.experts > 0) {
    const double moved = rate * (shape.experts - bin.experts);
    bin.experts += moved;
    bin.seconds += seconds_per_expert_ * moved;
  } else if (shape.experts > 0) {
    bin.experts = shape.experts;
  }
  bin.seconds = std::max(bin.seconds, kLeastSeconds);
}

// All costs follow those of a step. What is known of other numbers of rows fades, near this one,
// and everywhere when several steps in a row are far from what was expected.
void DraftCosts::observe_level(int64_t rows, double relative) {
  relative = std::clamp(relative, -0.9, kOutlier - 1);
  surprise_ += kSurpriseRate * (relative - surprise_);
  const bool surprised = std::abs(surprise_) > kSurprise;
  for (std::size_t i = 0; i < kNumBins; ++i) {
    bins_[i].seconds *= 1 + kLevelRate * relative;
    if (i == nearest_bin(rows)) continue;
    const bool near = kBinRows[i] <= kNear * rows && rows <= kNear * kBinRows[i];
    if (surprised || near) bins_[i].weight *= surprised ? kFastFade : kFade;
  }
}

double DraftCosts::expected(const StepShape& shape) const {
  const Usual typical = usual(shape.rows);
  return typical.seconds + linear(shape, typical) + drafting(shape.drafting);
}

double DraftCosts::drafting(int64_t sequences) const {
  return sequences > 0 ? drafting_.base() + drafting_.each() * static_cast<double>(sequences) : 0;
}

double DraftCosts::plausible(const StepShape& shape, double seconds) const {
  const double weight = bins_[nearest_bin(shape.rows)].weight;
  if (weight < 1) return seconds;
  return std::min(seconds, (weight < kSettledWeight ? kEarlyOutlier : kOutlier) * expected(shape));
}

// What is expected by rows, never falling. Bins of little weight are bounded by the others' curve.
std::vector<RowCosts::Point> DraftCosts::curve(double keys_per_row) const {
  std::vector<WeighedPoint> all, settled;
  for (std::size_t i = 0; i < kNumBins; ++i) {
    const Bin& bin = bins_[i];
    if (bin.weight <= 0) continue;
    StepShape shape{.rows = kBinRows[i], .experts = bin.experts * expert_ratio_};
    shape.key_pairs = static_cast<int64_t>(keys_per_row * static_cast<double>(shape.rows));
    const double seconds = bin.seconds + linear(shape, {bin.seconds, bin.keys, bin.experts});
    all.push_back({{shape.rows, seconds}, bin.weight});
    if (bin.weight >= kSettledWeight) settled.push_back(all.back());
  }
  if (all.empty()) return {{1, kUnknownSeconds}};
  if (settled.empty()) return rising_curve(all);
  // One point says nothing of a slope: beyond it, costs are at most in proportion to the rows. What
  // was seen once only is tried once more, all the same.
  const RowCosts others(rising_curve(settled));
  const auto bound = [&](const WeighedPoint& weighed) {
    const bool seen_once = weighed.weight > 0.9 && weighed.weight < 2;
    const auto rows = static_cast<double>(weighed.point.rows);
    const auto known = static_cast<double>(settled.front().point.rows);
    const double factor = settled.size() > 1 || seen_once ? 1 : std::max(1.0, rows / known);
    return factor * others.seconds(weighed.point.rows);
  };
  for (WeighedPoint& weighed : all) {
    if (weighed.weight < kSettledWeight)
      weighed.point.seconds = std::min(weighed.point.seconds, bound(weighed));
  }
  return rising_curve(all);
}

std::shared_ptr<const StepCosts> DraftCosts::costs_for(const StepForecast& forecast) const {
  const RowCosts costs(curve(forecast.keys_per_row));
  const int64_t first = forecast.rows, last = forecast.rows + forecast.drafts;
  std::vector<RowCosts::Point> points = {{first, costs.seconds(first)}};
  for (const int64_t rows : kBinRows) {
    if (rows > first && rows < last) points.push_back({rows, costs.seconds(rows)});
  }
  if (last > first) points.push_back({last, costs.seconds(last)});
  return std::make_shared<const StepCosts>(StepCosts{
      RowCosts(convex_curve(points)), RowCosts(points), drafting_.base(), drafting_.each()});
}

CostTable DraftCosts::table() const {
  CostTable table;
  for (std::size_t i = 0; i < kNumBins; ++i) {
    const Bin& bin = bins_[i];
    if (bin.weight > 0)
      table.points.push_back({kBinRows[i], bin.seconds, bin.weight, bin.keys, bin.experts});
  }
  table.rise_per_key = rise_per_key_;
  table.seconds_per_expert = seconds_per_expert_;
  table.drafting_base = drafting_.base();
  table.drafting_each = drafting_.each();
  table.drafting_weight = drafting_.weight();
  return table;
}

}  // namespace di::sched
