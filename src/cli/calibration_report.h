// What a calibration changes, for people and programs: a table, reliability as text and as a plot,
// and JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "sched/draft_calibration.h"

namespace di::cli {

/// Before: at temperature 1; after: at the fitted ones.
struct Reliabilities {
  sched::Reliability before;
  sched::Reliability after;
};

/// Bins of all drafts, whatever their position.
struct ReliabilityPlot {
  std::vector<sched::ReliabilityBin> before;
  std::vector<sched::ReliabilityBin> after;
};

/// Fitted temperatures, and how estimates and what happened agree with and without them.
struct CalibrationReport {
  std::vector<double> temperatures;
  std::vector<int64_t> samples;  ///< judgements that each was fitted to
  int64_t fitted_blocks = 0;
  int64_t checked_blocks = 0;
  bool held_out = false;  ///< the blocks that are checked are not those that were fitted to

  std::vector<Reliabilities> drafts;     ///< [drafts]: confidences, those before being accepted
  std::vector<Reliabilities> survivals;  ///< [drafts]: of a draft and all before it
  ReliabilityPlot draft_plot;
  ReliabilityPlot survival_plot;
};

/// Fits `length` temperatures to some texts and looks at them on others, or on the same when those
/// hold no block.
CalibrationReport make_report(
    std::span<const sched::JudgedText> fit, std::span<const sched::JudgedText> check, int64_t length
);

/// Lines for a terminal.
std::string report_text(const CalibrationReport& report);

Json report_json(const CalibrationReport& report);

/// Two panels: drafts and survivals, before and after, beside what would be perfect.
std::string report_svg(const CalibrationReport& report);

}  // namespace di::cli
