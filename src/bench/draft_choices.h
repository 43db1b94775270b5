// What ways to choose how many drafts to verify would gain: expected tokens a second of made-up
// steps, whose costs are given and whose drafts are accepted as a set law says. Pure arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace di::bench {

/// Seconds of the steps of some sequences.
struct ChoiceCosts {
  std::vector<double> rows;  ///< [drafts of a sequence + 1]: backbone, head and draws of a step in
                             ///< which each sequence verifies so many drafts
  double drafting = 0;       ///< making new drafts for all sequences
};

/// How drafts are accepted: each has a confidence of its own from a Beta law, and is accepted with
/// that probability if those before it are.
struct AcceptanceLaw {
  double mean = 0.75;
  double concentration = 4;  ///< α + β: the higher, the less confidences differ
  int64_t steps = 4000;
  uint64_t seed = 1;
};

/// What a way to choose came to.
struct ChoiceResult {
  std::string policy;
  double verified = 0;  ///< drafts of a sequence and step, mean
  double tokens = 0;    ///< of a sequence and step, expected
  double seconds = 0;   ///< of a step, mean

  /// Of all `sequences`.
  double tokens_per_second(int64_t sequences) const {
    return static_cast<double>(sequences) * tokens / seconds;
  }
};

/// Costs from those measured with `few` and `many` layers to `layers`, along the line through both
/// for each number of rows. Drafting, which no backbone layer is part of, is the mean of both.
ChoiceCosts costs_of_layers(
    const ChoiceCosts& few,
    int64_t few_layers,
    const ChoiceCosts& many,
    int64_t many_layers,
    int64_t layers
);

/// In this order: off, which makes no drafts; static 1 to the most drafts; early stop; budget,
/// which is sized by the step before and dealt out. All see the same confidences. Steps between the
/// measured numbers of rows cost what the line between them says.
std::vector<ChoiceResult> evaluate_choices(
    int64_t sequences, const ChoiceCosts& costs, const AcceptanceLaw& law
);

}  // namespace di::bench
