// The k best of a long stream of scores, in memory for 2k of them. Ties go to the lower index, so
// the result is one fixed set however the stream is ordered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace di::ops::cpu {

/// Collects scores above −∞.
class TopK {
 public:
  explicit TopK(int64_t k) : k_(static_cast<std::size_t>(k)) { kept_.reserve(2 * k_); }

  /// Cost: a comparison for a score that is not among the best so far.
  void offer(int32_t index, float score) {
    if (score < floor_.score || !better({score, index}, floor_)) return;
    kept_.push_back({score, index});
    if (kept_.size() >= 2 * k_) cut();
  }

  /// Offers what another stream kept.
  void offer_all(const TopK& other) {
    for (const Item& item : other.kept_)
      offer(item.index, item.score);
  }

  /// Writes the indices of the best in ascending order, −1 behind them up to k.
  void write(int32_t* out) {
    if (kept_.size() > k_) cut();
    std::sort(kept_.begin(), kept_.end(), [](const Item& a, const Item& b) {
      return a.index < b.index;
    });
    for (std::size_t i = 0; i < k_; ++i)
      out[i] = i < kept_.size() ? kept_[i].index : -1;
  }

 private:
  struct Item {
    float score;
    int32_t index;
  };
  static bool better(const Item& a, const Item& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  }

  /// Keeps the k best; the worst of them is what newcomers have to beat.
  void cut() {
    if (k_ == 0) return kept_.clear();
    const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(k_ - 1);
    std::nth_element(kept_.begin(), last, kept_.end(), better);
    kept_.resize(k_);
    floor_ = kept_.back();
  }

  std::size_t k_;
  std::vector<Item> kept_;
  Item floor_ = {-std::numeric_limits<float>::infinity(), -1};  // nothing at −∞ beats it
};

}  // namespace di::ops::cpu
