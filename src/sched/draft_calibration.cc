#include "sched/draft_calibration.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sched/draft_budget.h"

namespace di::sched {
namespace {

constexpr std::size_t kNumParts = 5;

/// σ(x), without an infinity on the way.
double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

/// ln(1 + e^x).
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

/// The derivative by β = 1/T of what fit_temperature() minimises. It rises with β.
double slope(std::span<const Judgement> judgements, double beta) {
  double sum = beta - 1;
  for (const Judgement& judgement : judgements) {
    const double accepted = judgement.accepted ? 1 : 0;
    sum += judgement.confidence * (sigmoid(beta * judgement.confidence) - accepted);
  }
  return sum;
}

/// The judgements on draft `index` of the texts in one part of kNumParts, or of those in all
/// others.
std::vector<Judgement> judgements_of_part(
    std::span<const JudgedText> texts, std::size_t index, std::size_t part, bool inside
) {
  std::vector<Judgement> all;
  for (std::size_t t = 0; t < texts.size(); ++t) {
    if ((t % kNumParts == part) != inside) continue;
    const std::vector<Judgement> more = judgements_of(texts[t], index);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

/// Whether temperatures fitted to some texts make the others likelier than none does.
bool foretells_others(std::span<const JudgedText> texts, std::size_t index) {
  double gain = 0;
  for (std::size_t part = 0; part < kNumParts; ++part) {
    const std::vector<Judgement> others = judgements_of_part(texts, index, part, true);
    const double fitted = fit_temperature(judgements_of_part(texts, index, part, false));
    gain += negative_log_likelihood(others, 1) - negative_log_likelihood(others, fitted);
  }
  return gain > 0;
}

ReliabilityBin bin_of(std::span<const Estimate> estimates) {
  ReliabilityBin bin{.count = std::ssize(estimates)};
  for (const Estimate& estimate : estimates) {
    bin.estimate += estimate.probability;
    bin.share += estimate.came_true ? 1 : 0;
  }
  bin.estimate /= static_cast<double>(bin.count);
  bin.share /= static_cast<double>(bin.count);
  return bin;
}

}  // namespace

std::vector<JudgedBlock> blocks_of(std::span<const JudgedText> texts) {
  std::vector<JudgedBlock> blocks;
  for (const JudgedText& text : texts)
    blocks.insert(blocks.end(), text.begin(), text.end());
  return blocks;
}

std::vector<Judgement> judgements_of(std::span<const JudgedBlock> blocks, std::size_t index) {
  std::vector<Judgement> judgements;
  for (const JudgedBlock& block : blocks) {
    const auto accepted = static_cast<std::size_t>(block.accepted);
    if (index >= block.confidence.size() || accepted < index) continue;
    judgements.push_back({block.confidence[index], accepted > index});
  }
  return judgements;
}

double negative_log_likelihood(std::span<const Judgement> judgements, double temperature) {
  double sum = 0;
  for (const Judgement& judgement : judgements) {
    const double x = judgement.confidence / temperature;
    sum += softplus(judgement.accepted ? -x : x);
  }
  return sum;
}

double fit_temperature(std::span<const Judgement> judgements) {
  // In β = 1/T the sum is convex: its slope has one zero, which halving cannot miss.
  if (slope(judgements, 1) == 0) return 1;
  double low = 1 / kMostTemperature;
  double high = 1 / kLeastTemperature;
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high)
      return std::clamp(1 / middle, kLeastTemperature, kMostTemperature);
    (slope(judgements, middle) < 0 ? low : high) = middle;
  }
}

std::vector<double> fit_temperatures(std::span<const JudgedText> texts, int64_t length) {
  const std::vector<JudgedBlock> blocks = blocks_of(texts);
  std::vector<double> temperatures;
  for (std::size_t index = 0; index < static_cast<std::size_t>(length); ++index) {
    const double fitted = fit_temperature(judgements_of(blocks, index));
    temperatures.push_back(foretells_others(texts, index) ? fitted : 1);
  }
  return temperatures;
}

std::vector<Estimate> estimates_of(std::span<const Judgement> judgements, double temperature) {
  std::vector<Estimate> estimates;
  for (const Judgement& judgement : judgements)
    estimates.push_back({sigmoid(judgement.confidence / temperature), judgement.accepted});
  return estimates;
}

std::vector<Estimate> survival_estimates(
    std::span<const JudgedBlock> blocks, std::size_t index, std::span<const double> temperatures
) {
  std::vector<Estimate> estimates;
  for (const JudgedBlock& block : blocks) {
    if (index >= block.confidence.size()) continue;
    const Survivals all = survivals(block.confidence, temperatures);
    estimates.push_back({all[index], block.accepted > static_cast<int64_t>(index)});
  }
  return estimates;
}

std::vector<ReliabilityBin> reliability_bins(std::vector<Estimate> estimates, int64_t num_bins) {
  DI_CHECK(num_bins > 0, "estimates need a bin");
  const auto lower = [](const Estimate& a, const Estimate& b) {
    return a.probability < b.probability;
  };
  std::sort(estimates.begin(), estimates.end(), lower);
  std::vector<ReliabilityBin> bins;
  const auto total = static_cast<int64_t>(estimates.size());
  int64_t begin = 0;
  for (int64_t bin = 1; bin <= num_bins; ++bin) {
    const int64_t quota = bin * total / num_bins;
    if (quota <= begin) continue;  // the bin before took its estimates: they equal its own
    const auto last = estimates.begin() + quota - 1;
    const int64_t end = std::upper_bound(last, estimates.end(), *last, lower) - estimates.begin();
    bins.push_back(bin_of(std::span(estimates).subspan(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)
    )));
    begin = end;
  }
  return bins;
}

Reliability reliability_of(std::span<const Estimate> estimates) {
  if (estimates.empty()) return {};
  const ReliabilityBin all = bin_of(estimates);
  Reliability result{.count = all.count, .estimate = all.estimate, .share = all.share};
  for (const ReliabilityBin& bin : reliability_bins({estimates.begin(), estimates.end()})) {
    const double weight = static_cast<double>(bin.count) / static_cast<double>(all.count);
    result.error += weight * std::abs(bin.estimate - bin.share);
  }
  return result;
}

}  // namespace di::sched
