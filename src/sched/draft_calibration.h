// Calibrated confidences: one temperature for each draft position, fitted to what became of drafts,
// and how far estimates lie from what happened. Pure functions; draft_budget.h applies the
// temperatures, docs/drafts.md says what they are good for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace di::sched {

/// Drafts of one step and how many of them the target accepted.
struct JudgedBlock {
  std::vector<float> confidence;  ///< [drafts]: of σ's argument, finite
  int64_t accepted = 0;           ///< 0 … drafts; the first drafts are those

  bool operator==(const JudgedBlock&) const = default;
};

/// The blocks along one text. They resemble each other, so what is learnt of one text is proved on
/// another.
using JudgedText = std::vector<JudgedBlock>;

/// The blocks of all texts.
std::vector<JudgedBlock> blocks_of(std::span<const JudgedText> texts);

/// A draft's confidence and whether it was accepted, those before it being so.
struct Judgement {
  double confidence = 0;  ///< of σ's argument
  bool accepted = false;
};

/// No fit goes beyond these.
inline constexpr double kLeastTemperature = 0.05;
inline constexpr double kMostTemperature = 20;

/// The judgements on draft `index`: of the blocks whose drafts before it were all accepted.
std::vector<Judgement> judgements_of(std::span<const JudgedBlock> blocks, std::size_t index);

/// −ln of the probability that σ(confidence / temperature) gives to what happened.
double negative_log_likelihood(std::span<const Judgement> judgements, double temperature);

/// The temperature that makes the judgements most likely, beside half a square of 1/T − 1, which
/// few of them do not outweigh. 1 for none; within the bounds whatever they are, such as all
/// accepted. Never less likely than at 1. Does not depend on anything but the judgements.
/// Cost: about sixty passes over them.
double fit_temperature(std::span<const Judgement> judgements);

/// Temperatures of `length` drafts, each fitted to the judgements on its own position in all texts.
/// One stays 1 unless it also makes texts likelier that it was not fitted to: the texts are dealt
/// into five parts, and each part is judged by what is fitted to the others.
std::vector<double> fit_temperatures(std::span<const JudgedText> texts, int64_t length);

/// A probability that was stated for something, and whether it came true.
struct Estimate {
  double probability = 0;
  bool came_true = false;
};

/// What σ(confidence / temperature) says of each judgement.
std::vector<Estimate> estimates_of(std::span<const Judgement> judgements, double temperature);

/// Survivals of draft `index` in all blocks that have it, whatever became of the drafts before it.
/// `temperatures` covers their drafts.
std::vector<Estimate> survival_estimates(
    std::span<const JudgedBlock> blocks, std::size_t index, std::span<const double> temperatures
);

/// Estimates of about the same height.
struct ReliabilityBin {
  int64_t count = 0;
  double estimate = 0;  ///< mean probability
  double share = 0;     ///< of them that came true
};

/// The estimates in order of height, in at most `num_bins` bins of about equally many: all bins are
/// equally certain then, and lie where the estimates do. Equal estimates share a bin, so that their
/// order does not matter.
std::vector<ReliabilityBin> reliability_bins(
    std::vector<Estimate> estimates, int64_t num_bins = 10
);

/// How estimates and what happened agree.
struct Reliability {
  int64_t count = 0;
  double estimate = 0;  ///< mean probability
  double share = 0;     ///< that came true
  double error = 0;  ///< expected calibration error: the mean over all of |estimate − share| of
                     ///< their bins, ten of them
};

/// All zero for no estimates.
Reliability reliability_of(std::span<const Estimate> estimates);

}  // namespace di::sched
