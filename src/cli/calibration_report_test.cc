// Reports of a calibration: what is fitted and what is looked at, and how it is told.
#include "cli/calibration_report.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace di::cli {
namespace {

/// Texts whose drafts are accepted with σ(confidence / 3): much less sure than they seem.
std::vector<sched::JudgedText> draw_texts(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> confidence(2.0, 3.0);
  std::uniform_real_distribution<double> coin;
  std::vector<sched::JudgedText> texts(20, sched::JudgedText(100));
  for (sched::JudgedText& text : texts) {
    for (sched::JudgedBlock& block : text) {
      bool accepted = true;
      for (int j = 0; j < 3; ++j) {
        const double x = confidence(random);
        block.confidence.push_back(static_cast<float>(x));
        accepted = accepted && coin(random) < 1 / (1 + std::exp(-x / 3));
        block.accepted += accepted ? 1 : 0;
      }
    }
  }
  return texts;
}

TEST(CalibrationReport, LooksAtTextsThatWereHeldOut) {
  const CalibrationReport report = make_report(draw_texts(1), draw_texts(2), 3);
  EXPECT_TRUE(report.held_out);
  EXPECT_EQ(report.fitted_blocks, 2000);
  ASSERT_EQ(report.drafts.size(), 3u);
  EXPECT_EQ(report.drafts[0].before.count, 2000);
  EXPECT_GT(report.drafts[0].before.count, report.drafts[1].before.count);
  EXPECT_EQ(report.survivals[1].before.count, 2000);
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(report.temperatures[j], 3, 0.5);
    EXPECT_LT(report.drafts[j].after.error, report.drafts[j].before.error);
    EXPECT_LT(report.survivals[j].after.error, report.survivals[j].before.error);
  }
}

TEST(CalibrationReport, LooksAtTheSameTextsWhenThereAreNoOthers) {
  const std::vector<sched::JudgedText> texts = draw_texts(1);
  for (const auto& none : {std::vector<sched::JudgedText>{}, std::vector<sched::JudgedText>(3)}) {
    const CalibrationReport report = make_report(texts, none, 3);
    EXPECT_FALSE(report.held_out);
    EXPECT_EQ(report.checked_blocks, report.fitted_blocks);
    EXPECT_EQ(report.samples[0], 2000);
  }
}

TEST(CalibrationReport, IsToldAsTableBarsJsonAndPlot) {
  const CalibrationReport report = make_report(draw_texts(1), draw_texts(2), 3);
  const std::string text = report_text(report);
  EXPECT_TRUE(text.starts_with("fitted to 2000 steps, checked on 2000 others\n")) << text;
  EXPECT_NE(text.find("  1..3 "), std::string::npos) << text;
  EXPECT_NE(text.find("#|"), std::string::npos) << text;
  const Json json = Json::parse(report_json(report).dump(), "report");
  EXPECT_EQ(json.at("temperatures").as_array().size(), 3u);
  EXPECT_EQ(json.at("survivals").as_array()[2].at("count").as_integer(), 2000);
  const std::string svg = report_svg(report);
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_NE(svg.find("2000 others"), std::string::npos);
}

TEST(CalibrationReport, AnEmptyOneIsNoNumber) {
  const CalibrationReport report = make_report({}, {}, 2);
  EXPECT_EQ(report.temperatures, (std::vector<double>{1, 1}));
  EXPECT_EQ(report_text(report).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace di::cli
