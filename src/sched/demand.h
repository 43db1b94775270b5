// How many blocks a set of sequences will need at its peak: what admission asks before it lets
// another one in.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace di::sched {

/// One sequence's blocks from now on: it grows by a token a step, then gives everything back.
struct Demand {
  int64_t tokens = 0;         ///< it will have once its prompt is computed
  int64_t growth = 0;         ///< tokens until it is expected to end
  int64_t shared_blocks = 0;  ///< of its blocks, those that another one's demand counts
};

/// The demands of the sequences that hold a slot, beside `fixed_blocks` that stay taken.
class PeakDemand {
 public:
  PeakDemand(std::vector<Demand> demands, int64_t fixed_blocks);

  void add(const Demand& demand);
  void remove(const Demand& demand);  ///< one that was added

  /// The most blocks needed at once when every sequence grows by a token a step: exact, in
  /// O(n log kBlockTokens). The peak lies where some sequence is about to end.
  int64_t num_blocks() const;

 private:
  std::vector<Demand> demands_;  // the longest growth first
  int64_t fixed_blocks_ = 0;
};

/// How many more tokens a sequence is expected to draw, learnt from those that ended, and how far
/// memory may be promised twice.
///
/// Promising less than everybody may need keeps memory busy and has its price: now and then someone
/// gives way and is computed again. The caution falls with work done and rises with work lost, so
/// that about a fiftieth of the work is done twice where memory is short, and none where it is not.
class OutputForecast {
 public:
  /// `pool_tokens`: what the cache holds; the caution moves by about 1 while that is computed.
  explicit OutputForecast(int64_t pool_tokens);

  /// A sequence ended after `outputs` of `max_tokens`.
  void observe_end(int64_t outputs, int64_t max_tokens);
  /// A step ended that took as long as `rows` prompt rows take.
  void observe_work(double rows);
  /// So many rows are to be computed again.
  void observe_loss(int64_t rows);

  /// Tokens that a sequence with `outputs` of `max_tokens` should be given room for, at least 1.
  int64_t expected_more(int64_t outputs, int64_t max_tokens) const;

 private:
  static constexpr std::size_t kBins = 32;

  // Ended sequences by the share of max_tokens they drew; older ones fade.
  std::array<double, kBins> weights_{};
  std::array<double, kBins> mean_share_from_{};  // of those in a bin or above it
  double caution_ = 1;
  double caution_of_row_;
};

}  // namespace di::sched
