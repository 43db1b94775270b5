// What a request changes in the model's logits before anything is drawn: penalties, biases, and
// tokens that may not come.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/params.h"

namespace di::sampling {

/// The edits of one sequence, and the tokens that its penalties count.
class LogitEdits {
 public:
  /// `prompt` is counted by the repetition penalty.
  LogitEdits(
      std::shared_ptr<const SamplingParams> params, int32_t eos, std::span<const int32_t> prompt
  );

  /// Counts a token of the output.
  void count_output(int32_t token);

  /// Takes back the newest token of the output, which is `token`.
  void take_back(int32_t token);

  /// Tokens of the output so far.
  int64_t num_outputs() const { return num_outputs_; }

  /// Whether apply() would change anything now.
  bool any() const;

  /// Edits a row of logits without NaN and +∞; entries become −∞ but never NaN or +∞.
  void apply(std::span<double> logits) const;

 private:
  struct Seen {
    int32_t token = 0;
    bool in_prompt = false;
    int64_t outputs = 0;  ///< times in the output
  };

  bool ends_are_banned() const { return num_outputs_ < params_->min_tokens; }
  bool eos_is_banned() const;
  bool counts_outputs() const;
  Seen& seen(int32_t token);
  void penalise(std::span<double> logits) const;
  void keep_allowed(std::span<double> logits) const;

  std::shared_ptr<const SamplingParams> params_;
  int32_t eos_;
  int64_t num_outputs_ = 0;
  std::vector<Seen> seen_;                          ///< tokens that a penalty concerns
  std::unordered_map<int32_t, std::size_t> index_;  ///< of a token in `seen_`
};

}  // namespace di::sampling
