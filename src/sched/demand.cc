// Peak demand and expected output; see demand.h.
#include "sched/demand.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cache/layout.h"

namespace di::sched {
namespace {

using cache::kBlockTokens;

// Counts of lengths modulo a block, with the number of those above a residue in O(log n): a Fenwick
// tree over residues in descending order.
class Residues {
 public:
  void add(int64_t residue) {
    for (int64_t i = kBlockTokens - residue; i <= kBlockTokens; i += i & -i)
      ++tree_[static_cast<std::size_t>(i)];
  }
  int64_t num_above(int64_t residue) const {
    int64_t sum = 0;
    for (int64_t i = kBlockTokens - residue - 1; i > 0; i -= i & -i)
      sum += tree_[static_cast<std::size_t>(i)];
    return sum;
  }

 private:
  std::array<int32_t, kBlockTokens + 1> tree_{};
};

constexpr double kLossShare = 0.02;   // of all work, what may be done twice
constexpr double kMostCaution = 1.5;  // times the mean of what others drew

std::size_t bin_of(double share) {
  constexpr double kBins = 32;
  return static_cast<std::size_t>(std::clamp(share * kBins, 0.0, kBins - 1));
}

bool grows_longer(const Demand& a, const Demand& b) {
  if (a.growth != b.growth) return a.growth > b.growth;
  if (a.tokens != b.tokens) return a.tokens < b.tokens;
  return a.shared_blocks < b.shared_blocks;
}

}  // namespace

PeakDemand::PeakDemand(std::vector<Demand> demands, int64_t fixed_blocks)
    : demands_(std::move(demands)), fixed_blocks_(fixed_blocks) {
  std::sort(demands_.begin(), demands_.end(), grows_longer);
}

void PeakDemand::add(const Demand& demand) {
  const auto place = std::upper_bound(demands_.begin(), demands_.end(), demand, grows_longer);
  demands_.insert(place, demand);
}

void PeakDemand::remove(const Demand& demand) {
  const auto place = std::lower_bound(demands_.begin(), demands_.end(), demand, grows_longer);
  DI_CHECK(place != demands_.end() && !grows_longer(demand, *place), "the demand was added");
  demands_.erase(place);
}

int64_t PeakDemand::num_blocks() const {
  // With t = 128 q + r tokens, after d = 128 a + b steps a sequence fills q + a blocks and one more
  // when r + b > 0, and another when r + b > 128. Counting from t − 1 instead makes that
  // q' + a + 1 + (r' + b > 127), for t ≥ 1.
  Residues residues;
  int64_t blocks_now = fixed_blocks_;
  int64_t peak = fixed_blocks_;
  for (std::size_t i = 0; i < demands_.size(); ++i) {
    const Demand& demand = demands_[i];
    const int64_t last = demand.tokens - 1;
    blocks_now += last / kBlockTokens + 1 - demand.shared_blocks;
    residues.add(last % kBlockTokens);
    const int64_t whole = demand.growth / kBlockTokens;
    const int64_t rest = demand.growth % kBlockTokens;
    const int64_t grown = whole * static_cast<int64_t>(i + 1);
    peak = std::max(peak, blocks_now + grown + residues.num_above(kBlockTokens - 1 - rest));
  }
  return peak;
}

OutputForecast::OutputForecast(int64_t pool_tokens)
    : caution_of_row_(1.0 / static_cast<double>(pool_tokens)) {
  mean_share_from_.fill(1);
}

void OutputForecast::observe_end(int64_t outputs, int64_t max_tokens) {
  constexpr double kKeep = 127.0 / 128;
  constexpr double kDoubt = 0.5;  // weight of one that uses all it may
  const double share = static_cast<double>(outputs) / static_cast<double>(max_tokens);
  for (double& weight : weights_)
    weight *= kKeep;
  weights_[bin_of(share)] += 1;
  double weight = kDoubt;
  double sum = kDoubt;
  for (std::size_t bin = kBins; bin-- > 0;) {
    weight += weights_[bin];
    sum += weights_[bin] * (static_cast<double>(bin) + 0.5) / kBins;
    mean_share_from_[bin] = sum / weight;
  }
}

void OutputForecast::observe_work(double rows) {
  const double fall = kLossShare * caution_of_row_ * rows;
  caution_ = std::max(0.0, caution_ - fall);
}

void OutputForecast::observe_loss(int64_t rows) {
  caution_ = std::min(kMostCaution, caution_ + caution_of_row_ * static_cast<double>(rows));
}

int64_t OutputForecast::expected_more(int64_t outputs, int64_t max_tokens) const {
  const double most = static_cast<double>(max_tokens);
  const double share = static_cast<double>(outputs) / most;
  const double more = (mean_share_from_[bin_of(share)] - share) * most;
  const auto cautious = static_cast<int64_t>(std::ceil(caution_ * more));
  return std::clamp<int64_t>(cautious, 1, std::max<int64_t>(max_tokens - outputs, 1));
}

}  // namespace di::sched
