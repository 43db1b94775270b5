// The calibration of a model's drafter on disk: a small JSON file beside the model, written by
// `deepinfer calibrate`. docs/drafts.md describes it.
//
// Such a file may come from anywhere: reading one trusts nothing in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace di::engine {

/// The name of the file in a model folder.
inline constexpr const char* kCalibrationName = "draft_calibration.json";

/// Temperatures of a drafter's confidences, and whose they are.
struct DraftCalibration {
  std::string model = {};                 ///< name of its folder, without the path
  std::string fingerprint = {};           ///< model_fingerprint()
  std::vector<double> temperatures = {};  ///< of draft 0, 1, …: 1 … cache::kMostDrafts of
                                          ///< them, within sched's bounds
  std::vector<int64_t> samples = {};      ///< judgements that each was fitted to
  double sampling_temperature = 0;        ///< of the target that judged

  bool operator==(const DraftCalibration&) const = default;

  /// Temperatures for `length` drafts; those behind the last one fitted take that one's.
  std::vector<double> for_length(int64_t length) const;
};

/// The file's text.
std::string calibration_text(const DraftCalibration& calibration);

/// Reads a text; `where` names it in messages. Throws Error{kInvalidFile} for what is wrong with
/// it.
DraftCalibration parse_calibration(std::string_view text, const std::string& where);

/// The calibration beside the model in `folder`, or nothing where there is none. Throws
/// Error{kInvalidFile} when the file is broken or of another model, and what reading it throws.
std::optional<DraftCalibration> read_calibration(const std::string& folder);

/// The same from another place, where it must exist.
DraftCalibration read_calibration_file(const std::string& path, const std::string& folder);

}  // namespace di::engine
