// Fitted temperatures: known ones are found again, what is fitted is never worse, and extremes stay
// within bounds.
#include "sched/draft_calibration.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "sched/draft_budget.h"

namespace di::sched {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Confidences of blocks whose drafts are accepted with σ(confidence / temperature).
std::vector<JudgedBlock> draw_blocks(
    unsigned seed, std::size_t count, const std::vector<double>& temperatures
) {
  std::mt19937 random(seed);
  std::normal_distribution<double> confidence(1.0, 2.0);
  std::uniform_real_distribution<double> coin;
  std::vector<JudgedBlock> blocks(count);
  for (JudgedBlock& block : blocks) {
    bool accepted = true;
    for (const double temperature : temperatures) {
      block.confidence.push_back(static_cast<float>(confidence(random)));
      accepted = accepted && coin(random) < sigmoid(block.confidence.back() / temperature);
      block.accepted += accepted ? 1 : 0;
    }
  }
  return blocks;
}

/// The same as a hundred texts.
std::vector<JudgedText> draw_texts(
    unsigned seed, std::size_t count, const std::vector<double>& temperatures
) {
  std::vector<JudgedText> texts;
  for (unsigned t = 0; t < 100; ++t)
    texts.push_back(draw_blocks(100 * seed + t, count / 100, temperatures));
  return texts;
}

std::vector<Judgement> random_judgements(std::mt19937& random, std::size_t count) {
  std::normal_distribution<double> confidence(0.0, 3.0);
  std::vector<Judgement> judgements(count);
  for (Judgement& judgement : judgements)
    judgement = {confidence(random), random() % 3 != 0};
  return judgements;
}

/// What a fit minimises.
double objective(const std::vector<Judgement>& judgements, double temperature) {
  const double off = 1 / temperature - 1;
  return negative_log_likelihood(judgements, temperature) + off * off / 2;
}

TEST(DraftCalibration, FindsTheTemperaturesThatDraftsWereJudgedBy) {
  const std::vector<double> truth = {0.5, 0.8, 2.0, 4.0, 1.5};
  const std::vector<double> found = fit_temperatures(draw_texts(1, 60000, truth), 5);
  ASSERT_EQ(found.size(), truth.size());
  for (std::size_t j = 0; j < truth.size(); ++j)
    EXPECT_NEAR(found[j] / truth[j], 1, 0.08) << "draft " << j;
}

TEST(DraftCalibration, LessensTheErrorOfOtherDraftsByTheSameLaw) {
  const std::vector<double> truth = {0.6, 2.0, 3.0};
  const std::vector<double> none = {1, 1, 1};
  const std::vector<double> fitted = fit_temperatures(draw_texts(2, 20000, truth), 3);
  const std::vector<JudgedBlock> others = draw_blocks(3, 20000, truth);
  for (std::size_t j = 0; j < truth.size(); ++j) {
    const double before = reliability_of(survival_estimates(others, j, none)).error;
    const double after = reliability_of(survival_estimates(others, j, fitted)).error;
    EXPECT_LT(after, 0.015) << "draft " << j;
    EXPECT_GT(before, 2 * after) << "draft " << j;
  }
}

TEST(DraftCalibration, APositionIsFittedToDraftsThatTheTargetReached) {
  const std::vector<JudgedBlock> blocks = {
      {.confidence = {1, 2, 3}, .accepted = 0},
      {.confidence = {4, 5, 6}, .accepted = 1},
      {.confidence = {7, 8, 9}, .accepted = 3},
      {.confidence = {10}, .accepted = 1}};
  const auto second = judgements_of(blocks, 1);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].confidence, 5);
  EXPECT_FALSE(second[0].accepted);
  EXPECT_EQ(second[1].confidence, 8);
  EXPECT_TRUE(second[1].accepted);
  EXPECT_EQ(judgements_of(blocks, 0).size(), 4u);
  EXPECT_EQ(judgements_of(blocks, 3).size(), 0u);
}

TEST(DraftCalibration, NoTemperatureIsMoreLikelyThanTheFittedOne) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const std::vector<Judgement> judgements = random_judgements(random, 1 + random() % 60);
    const double best = fit_temperature(judgements);
    const double found = objective(judgements, best);
    EXPECT_LE(negative_log_likelihood(judgements, best), negative_log_likelihood(judgements, 1));
    for (double t = kLeastTemperature; t <= kMostTemperature; t *= 1.1)
      EXPECT_GE(objective(judgements, t), found - 1e-9) << "round " << round;
  }
}

TEST(DraftCalibration, MoreAcceptanceMakesConfidentDraftsCooler) {
  double before = kMostTemperature;
  for (std::size_t accepted = 0; accepted <= 100; accepted += 10) {
    std::vector<Judgement> judgements(100, Judgement{1.5, false});
    for (std::size_t i = 0; i < accepted; ++i)
      judgements[i].accepted = true;
    const double fitted = fit_temperature(judgements);
    EXPECT_LE(fitted, before);
    before = fitted;
  }
}

TEST(DraftCalibration, TheOrderOfBlocksAndOtherPositionsDoNotMatter) {
  std::vector<JudgedText> texts = draw_texts(5, 2000, {0.5, 2.5});
  const std::vector<double> both = fit_temperatures(texts, 2);
  EXPECT_LT(both[0], 0.9);
  EXPECT_GT(both[1], 1.5);
  EXPECT_EQ(fit_temperatures(texts, 1), std::vector<double>{both[0]});
  for (JudgedText& text : texts)
    std::reverse(text.begin(), text.end());
  const std::vector<double> reversed = fit_temperatures(texts, 2);
  for (std::size_t j = 0; j < 2; ++j)
    EXPECT_NEAR(reversed[j], both[j], 1e-9);
}

TEST(DraftCalibration, ATemperatureThatOtherTextsContradictIsNotKept) {
  // Confidences that are right already: what a fit finds is chance.
  int kept = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const std::vector<double> found = fit_temperatures(draw_texts(200 + seed, 300, {1.0}), 1);
    kept += found[0] != 1 ? 1 : 0;
  }
  EXPECT_LT(kept, 20) << "a fit alone would move all of them";
  // What one text says is said by no other.
  const std::vector<JudgedText> one = {draw_blocks(7, 5000, {4.0})};
  EXPECT_EQ(fit_temperatures(one, 1), std::vector<double>{1});
  EXPECT_EQ(fit_temperatures({}, 2), (std::vector<double>{1, 1}));
}

TEST(DraftCalibration, ExtremesStayWithinBounds) {
  EXPECT_EQ(fit_temperature({}), 1);
  EXPECT_EQ(fit_temperature(std::vector<Judgement>(1000, {0.0, true})), 1) << "says nothing";
  for (const bool accepted : {true, false}) {
    for (const double confidence : {-1e30, -50.0, -1.0, 1.0, 50.0, 1e30}) {
      for (const std::size_t count : {1u, 5u, 5000u}) {
        const double fitted =
            fit_temperature(std::vector<Judgement>(count, Judgement{confidence, accepted}));
        EXPECT_GE(fitted, kLeastTemperature);
        EXPECT_LE(fitted, kMostTemperature);
      }
    }
  }
}

TEST(DraftCalibration, AFewDraftsHardlyMoveATemperature) {
  const double three = fit_temperature(std::vector<Judgement>(3, Judgement{2, true}));
  EXPECT_GT(three, 0.7);
  EXPECT_LT(three, 1);
  EXPECT_LT(fit_temperature(std::vector<Judgement>(3000, Judgement{2, true})), 0.4);
}

TEST(Reliability, BinsHoldEquallyManyAndNeverPartEqualEstimates) {
  std::vector<Estimate> estimates;
  for (int i = 0; i < 100; ++i)
    estimates.push_back({i < 35 ? 0.2 : 0.2 + i * 0.001, i % 2 == 0});
  std::mt19937 random(6);
  std::shuffle(estimates.begin(), estimates.end(), random);
  const std::vector<ReliabilityBin> bins = reliability_bins(estimates, 10);
  ASSERT_EQ(bins.size(), 8u);
  EXPECT_EQ(bins[0].count, 35);
  EXPECT_NEAR(bins[0].estimate, 0.2, 1e-12);
  EXPECT_NEAR(bins[0].share, 18.0 / 35, 1e-12);
  EXPECT_EQ(bins[1].count, 5);
  for (std::size_t i = 2; i < bins.size(); ++i)
    EXPECT_EQ(bins[i].count, 10);
}

TEST(Reliability, ErrorIsTheMeanDistanceOfEstimatesAndShares) {
  std::vector<Estimate> estimates;
  for (int i = 0; i < 10; ++i)
    estimates.push_back({0.9, i < 7});
  for (int i = 0; i < 30; ++i)
    estimates.push_back({0.1, i < 6});
  const Reliability found = reliability_of(estimates);
  EXPECT_EQ(found.count, 40);
  EXPECT_NEAR(found.estimate, 0.3, 1e-12);
  EXPECT_NEAR(found.share, 13.0 / 40, 1e-12);
  EXPECT_NEAR(found.error, (10 * 0.2 + 30 * 0.1) / 40, 1e-12);
  EXPECT_EQ(reliability_of({}).count, 0);
  EXPECT_EQ(reliability_of({}).error, 0);
}

TEST(Reliability, SurvivalsAreProductsOfAllBlocksThatHaveTheDraft) {
  const std::vector<JudgedBlock> blocks = {
      {.confidence = {1, 2}, .accepted = 0},
      {.confidence = {3, 4}, .accepted = 2},
      {.confidence = {5}, .accepted = 1}};
  const std::vector<double> temperatures = {2, 0.5};
  const std::vector<Estimate> found = survival_estimates(blocks, 1, temperatures);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0].probability, sigmoid(0.5) * sigmoid(4), 1e-12);
  EXPECT_FALSE(found[0].came_true);
  EXPECT_NEAR(found[1].probability, sigmoid(1.5) * sigmoid(8), 1e-12);
  EXPECT_TRUE(found[1].came_true);
}

}  // namespace
}  // namespace di::sched
