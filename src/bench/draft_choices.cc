#include "bench/draft_choices.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "sched/cost_curve.h"
#include "sched/draft_budget.h"

namespace di::bench {
namespace {

using sched::RowCosts;
using sched::Survivals;

/// Confidences of a Beta law: x / (x + y) of two Gamma laws.
class Confidences {
 public:
  explicit Confidences(const AcceptanceLaw& law)
      : random_(law.seed),
        accepted_(law.mean * law.concentration),
        rejected_((1 - law.mean) * law.concentration) {}

  std::vector<Survivals> of_step(int64_t sequences, int64_t drafts) {
    std::vector<Survivals> step(static_cast<std::size_t>(sequences));
    for (Survivals& survivals : step) {
      double product = 1;
      for (int64_t i = 0; i < drafts; ++i)
        survivals.push_back(product *= draw());
    }
    return step;
  }

 private:
  double draw() {
    const double accepted = accepted_(random_);
    return accepted / (accepted + rejected_(random_));
  }

  std::mt19937_64 random_;
  std::gamma_distribution<double> accepted_;
  std::gamma_distribution<double> rejected_;
};

/// Both curves that a step's orders carry.
struct Curves {
  RowCosts convex;
  RowCosts rising;
};

Curves curves_of(int64_t sequences, const ChoiceCosts& costs) {
  std::vector<sched::WeighedPoint> measured;
  for (std::size_t k = 0; k < costs.rows.size(); ++k)
    measured.push_back({{sequences * static_cast<int64_t>(k + 1), costs.rows[k]}, 1});
  std::vector<RowCosts::Point> rising = sched::rising_curve(measured);
  const int64_t last = measured.back().point.rows;
  while (rising.size() > 1 && rising.back().rows > last)
    rising.pop_back();
  return {RowCosts(sched::convex_curve(rising)), RowCosts(rising)};
}

/// Adds up the steps of one way to choose.
class Tally {
 public:
  explicit Tally(std::string policy) { result_.policy = std::move(policy); }

  void add(
      const std::vector<Survivals>& step, const std::vector<int64_t>& verified, double seconds
  ) {
    for (const int64_t count : verified)
      result_.verified += static_cast<double>(count);
    result_.tokens += sched::expected_tokens(step, verified);
    result_.seconds += seconds;
  }

  ChoiceResult mean(int64_t steps, int64_t sequences) const {
    ChoiceResult mean = result_;
    mean.verified /= static_cast<double>(steps * sequences);
    mean.tokens /= static_cast<double>(steps * sequences);
    mean.seconds /= static_cast<double>(steps);
    return mean;
  }

 private:
  ChoiceResult result_;
};

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts)
    sum += count;
  return sum;
}

}  // namespace

ChoiceCosts costs_of_layers(
    const ChoiceCosts& few,
    int64_t few_layers,
    const ChoiceCosts& many,
    int64_t many_layers,
    int64_t layers
) {
  ChoiceCosts costs{.rows = {}, .drafting = (few.drafting + many.drafting) / 2};
  const double share =
      static_cast<double>(layers - few_layers) / static_cast<double>(many_layers - few_layers);
  for (std::size_t k = 0; k < few.rows.size(); ++k)
    costs.rows.push_back(few.rows[k] + share * (many.rows[k] - few.rows[k]));
  return costs;
}

std::vector<ChoiceResult> evaluate_choices(
    int64_t sequences, const ChoiceCosts& costs, const AcceptanceLaw& law
) {
  const int64_t most = std::ssize(costs.rows) - 1;
  const Curves curves = curves_of(sequences, costs);
  const sched::StepLoad load{.rows = sequences, .fixed_seconds = costs.drafting};
  std::vector<Tally> tallies = {Tally("off")};
  for (int64_t k = 1; k <= most; ++k)
    tallies.emplace_back(fmt::format("static {}", k));
  Tally early_stop("early stop"), budget("budget");

  Confidences confidences(law);
  std::vector<Survivals> earlier = confidences.of_step(sequences, most);
  for (int64_t i = 0; i < law.steps; ++i) {
    std::vector<Survivals> step = confidences.of_step(sequences, most);
    const auto add = [&](Tally& tally, const std::vector<int64_t>& verified, double drafting) {
      tally.add(step, verified, curves.rising.seconds(sequences + sum_of(verified)) + drafting);
    };
    for (int64_t k = 0; k <= most; ++k) {
      const std::vector<int64_t> verified(static_cast<std::size_t>(sequences), k);
      add(tallies[static_cast<std::size_t>(k)], verified, k == 0 ? 0 : costs.drafting);
    }
    add(early_stop, sched::drafts_by_early_stop(step, curves.convex, load), costs.drafting);
    const int64_t total = sched::draft_budget(earlier, curves.rising, load);
    add(budget, sched::deal_drafts(step, total), costs.drafting);
    earlier = std::move(step);
  }

  tallies.push_back(early_stop);
  tallies.push_back(budget);
  std::vector<ChoiceResult> results;
  for (const Tally& tally : tallies)
    results.push_back(tally.mean(law.steps, sequences));
  return results;
}

}  // namespace di::bench
