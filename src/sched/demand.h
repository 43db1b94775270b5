// How many blocks a set of sequences will need at its peak: what admission asks before it lets
// another one in.
#pragma once

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

/// What share of their allowed output sequences use, learnt from those that ended.
class OutputShare {
 public:
  /// A sequence ended after `outputs` of `max_tokens`.
  void observe(int64_t outputs, int64_t max_tokens);
  /// The expectation was too low: memory ran out.
  void raise();
  /// Tokens expected of a sequence that may yet draw `remaining`; at least 1 when it may draw any.
  int64_t expected(int64_t remaining) const;

 private:
  double mean_ = 1;       // of outputs / max_tokens; at first everything is expected to be used
  double deviation_ = 0;  // mean absolute deviation
};

}  // namespace di::sched
