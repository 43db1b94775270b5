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
  int64_t peak = 0;
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

void OutputShare::observe(int64_t outputs, int64_t max_tokens) {
  constexpr double kForget = 1.0 / 32;
  const double share = static_cast<double>(outputs) / static_cast<double>(max_tokens);
  deviation_ += kForget * (std::abs(share - mean_) - deviation_);
  mean_ += kForget * (share - mean_);
}

void OutputShare::raise() {
  mean_ += (1 - mean_) / 8;
}

int64_t OutputShare::expected(int64_t remaining) const {
  const double share = std::min(1.0, mean_ + deviation_);
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(remaining)));
}

}  // namespace di::sched
