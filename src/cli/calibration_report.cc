#include "cli/calibration_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bench/svg_plot.h"

namespace di::cli {
namespace {

using sched::Estimate;

void append(std::vector<Estimate>& all, const std::vector<Estimate>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Estimates before and after, of one draft or of all.
struct BothEstimates {
  std::vector<Estimate> before;
  std::vector<Estimate> after;

  Reliabilities reliabilities() const {
    return {sched::reliability_of(before), sched::reliability_of(after)};
  }
  ReliabilityPlot plot() const {
    return {sched::reliability_bins(before), sched::reliability_bins(after)};
  }
  void add(const BothEstimates& more) {
    append(before, more.before);
    append(after, more.after);
  }
};

void check_drafts(std::span<const sched::JudgedBlock> blocks, CalibrationReport& report) {
  const std::vector<double> none(report.temperatures.size(), 1.0);
  BothEstimates drafts, survivals;
  for (std::size_t i = 0; i < none.size(); ++i) {
    const std::vector<sched::Judgement> judgements = sched::judgements_of(blocks, i);
    const BothEstimates draft{
        sched::estimates_of(judgements, 1),
        sched::estimates_of(judgements, report.temperatures[i])};
    const BothEstimates survival{
        sched::survival_estimates(blocks, i, none),
        sched::survival_estimates(blocks, i, report.temperatures)};
    report.drafts.push_back(draft.reliabilities());
    report.survivals.push_back(survival.reliabilities());
    drafts.add(draft);
    survivals.add(survival);
  }
  report.draft_plot = drafts.plot();
  report.survival_plot = survivals.plot();
}

std::string row(const std::string& name, const std::string& fitted, const Reliabilities& line) {
  return fmt::format(
      "{:>6} {:>11} {:>7} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.4f} {:>8.4f}\n",
      name,
      fitted,
      line.before.count,
      line.before.share,
      line.before.estimate,
      line.after.estimate,
      line.before.error,
      line.after.error
  );
}

/// A bar as long as the share that came true, and a mark at the estimate.
std::string bar(const sched::ReliabilityBin& bin) {
  constexpr int kCells = 40;
  const auto cell = [](double share) {
    return static_cast<std::size_t>(std::lround(share * kCells));
  };
  std::string text(kCells + 1, ' ');
  std::fill_n(text.begin(), cell(bin.share), '#');
  text[cell(bin.estimate)] = '|';
  return text;
}

std::string bars(const std::string& title, const std::vector<sched::ReliabilityBin>& bins) {
  std::string text = title + "\n";
  for (const sched::ReliabilityBin& bin : bins)
    text +=
        fmt::format("{:>6.3f} {:>6.3f}  {} {:>6}\n", bin.estimate, bin.share, bar(bin), bin.count);
  return text;
}

Json reliabilities_json(const std::vector<Reliabilities>& all) {
  Json::Array lines;
  for (const Reliabilities& line : all) {
    lines.push_back(Json::Object{
        {"count", line.before.count},
        {"accepted", line.before.share},
        {"before", line.before.estimate},
        {"after", line.after.estimate},
        {"ece_before", line.before.error},
        {"ece_after", line.after.error}});
  }
  return lines;
}

bench::PlotSeries series(const char* name, const std::vector<sched::ReliabilityBin>& bins) {
  bench::PlotSeries series{name, {}};
  for (const sched::ReliabilityBin& bin : bins)
    series.points.push_back({bin.estimate, bin.share});
  return series;
}

bench::Plot panel(const std::string& title, const char* x_axis, const ReliabilityPlot& plot) {
  return {
      title,
      x_axis,
      "share that was accepted",
      {series("before", plot.before), series("after", plot.after), {"perfect", {{0, 0}, {1, 1}}}}};
}

std::string source_of(const CalibrationReport& report) {
  return fmt::format(
      "fitted to {} steps, checked on {}",
      report.fitted_blocks,
      report.held_out ? fmt::format("{} others", report.checked_blocks) : "the same"
  );
}

}  // namespace

CalibrationReport make_report(
    std::span<const sched::JudgedText> fit, std::span<const sched::JudgedText> check, int64_t length
) {
  const std::vector<sched::JudgedBlock> fitted = sched::blocks_of(fit);
  const std::vector<sched::JudgedBlock> others = sched::blocks_of(check);
  CalibrationReport report;
  report.temperatures = sched::fit_temperatures(fit, length);
  for (std::size_t i = 0; i < report.temperatures.size(); ++i)
    report.samples.push_back(std::ssize(sched::judgements_of(fitted, i)));
  report.held_out = !others.empty();
  const std::vector<sched::JudgedBlock>& checked = report.held_out ? others : fitted;
  report.fitted_blocks = std::ssize(fitted);
  report.checked_blocks = std::ssize(checked);
  check_drafts(checked, report);
  return report;
}

std::string report_text(const CalibrationReport& report) {
  std::string text = source_of(report) + "\n\n";
  text += "                                     confidence             ECE\n";
  text += " draft temperature  judged accepted   before    after   before    after\n";
  for (std::size_t i = 0; i < report.drafts.size(); ++i) {
    const std::string temperature = fmt::format("{:.3f}", report.temperatures[i]);
    text += row(std::to_string(i + 1), temperature, report.drafts[i]);
  }
  text += "and all before it\n";
  for (std::size_t i = 0; i < report.survivals.size(); ++i)
    text += row(fmt::format("1..{}", i + 1), "", report.survivals[i]);
  text += "\nconfidence (|), share that was accepted (#), drafts\n";
  text += bars("before", report.draft_plot.before);
  text += bars("after", report.draft_plot.after);
  return text;
}

Json report_json(const CalibrationReport& report) {
  Json::Array temperatures, samples;
  for (const double temperature : report.temperatures)
    temperatures.emplace_back(temperature);
  for (const int64_t count : report.samples)
    samples.emplace_back(count);
  return Json::Object{
      {"temperatures", std::move(temperatures)},
      {"samples", std::move(samples)},
      {"fitted_steps", report.fitted_blocks},
      {"checked_steps", report.checked_blocks},
      {"held_out", report.held_out},
      {"drafts", reliabilities_json(report.drafts)},
      {"survivals", reliabilities_json(report.survivals)}};
}

std::string report_svg(const CalibrationReport& report) {
  const std::string source = source_of(report);
  return bench::svg_document(
      {panel("Each draft: " + source, "confidence", report.draft_plot),
       panel("Draft and all before it: " + source, "survival", report.survival_plot)}
  );
}

}  // namespace di::cli
