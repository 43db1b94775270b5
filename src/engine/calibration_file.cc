#include "engine/calibration_file.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cache/layout.h"
#include "engine/record.h"
#include "sched/draft_calibration.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 1;
constexpr std::size_t kMaxBytes = std::size_t{1} << 16;
constexpr std::size_t kMostTemperatures = cache::kMostDrafts;
constexpr const char* kAdvice = "write it again with `deepinfer calibrate`, or delete it";

/// What a key holds in place of what it should.
[[noreturn]] void refuse(
    const std::string& where,
    const std::string& key,
    const std::string& expected,
    const std::string& found
) {
  throw Error(
      ErrorCode::kInvalidFile,
      fmt::format("{}: {}: expected {}, found {}; {}", where, key, expected, found, kAdvice)
  );
}

const Json& member(const Json& json, const std::string& where, const std::string& key) {
  const Json* value = json.find(key);
  if (value == nullptr) refuse(where, key, "the key", "none");
  return *value;
}

/// Text that a message may show as it is.
std::string name_at(const Json& json, const std::string& where, const std::string& key) {
  constexpr std::size_t kMostBytes = 255;
  const Json& value = member(json, where, key);
  if (!value.is_string()) refuse(where, key, "a string", value.kind());
  const std::string& text = value.as_string();
  const bool plain =
      std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!plain || text.size() > kMostBytes) {
    refuse(where, key, fmt::format("{} bytes at most, none for control", kMostBytes), "others");
  }
  return text;
}

/// A number from `least` to `most`.
double number_of(
    const Json& value, const std::string& where, const std::string& key, double least, double most
) {
  const std::string expected = fmt::format("a number from {:g} to {:g}", least, most);
  if (!value.is_number()) refuse(where, key, expected, value.kind());
  const double number = value.as_number();
  if (!(number >= least && number <= most)) refuse(where, key, expected, value.dump());
  return number;
}

const Json::Array& list_at(
    const Json& json,
    const std::string& where,
    const std::string& key,
    std::size_t least,
    std::size_t most
) {
  const Json& value = member(json, where, key);
  const std::string expected = least == most ? fmt::format("a list of {}", least)
                                             : fmt::format("a list of {} to {}", least, most);
  if (!value.is_array()) refuse(where, key, expected, value.kind());
  const std::size_t size = value.as_array().size();
  if (size < least || size > most) refuse(where, key, expected, fmt::format("{}", size));
  return value.as_array();
}

int64_t count_of(const Json& value, const std::string& where, const std::string& key) {
  if (!value.is_integer()) refuse(where, key, "a whole number", value.kind());
  number_of(value, where, key, 0, 9e15);
  return value.as_integer();
}

void check_version(const Json& json, const std::string& where) {
  const Json& version = member(json, where, "version");
  if (version != Json(kVersion)) refuse(where, "version", std::to_string(kVersion), version.dump());
}

}  // namespace

std::vector<double> DraftCalibration::for_length(int64_t length) const {
  std::vector<double> all = temperatures;
  all.resize(static_cast<std::size_t>(length), temperatures.empty() ? 1 : temperatures.back());
  return all;
}

std::string calibration_text(const DraftCalibration& calibration) {
  Json::Array temperatures, samples;
  for (const double temperature : calibration.temperatures)
    temperatures.emplace_back(temperature);
  for (const int64_t count : calibration.samples)
    samples.emplace_back(count);
  const Json json = Json::Object{
      {"version", kVersion},
      {"model", calibration.model},
      {"fingerprint", calibration.fingerprint},
      {"temperatures", std::move(temperatures)},
      {"samples", std::move(samples)},
      {"sampling_temperature", calibration.sampling_temperature}};
  return json.dump() + "\n";
}

DraftCalibration parse_calibration(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, {.max_depth = 4, .reject_duplicate_keys = true});
  if (!json.is_object()) refuse(where, "the file", "an object", json.kind());
  check_version(json, where);
  DraftCalibration calibration{
      .model = name_at(json, where, "model"), .fingerprint = name_at(json, where, "fingerprint")};
  for (const Json& value : list_at(json, where, "temperatures", 1, kMostTemperatures)) {
    calibration.temperatures.push_back(
        number_of(value, where, "temperatures", sched::kLeastTemperature, sched::kMostTemperature)
    );
  }
  const std::size_t count = calibration.temperatures.size();
  for (const Json& value : list_at(json, where, "samples", count, count))
    calibration.samples.push_back(count_of(value, where, "samples"));
  calibration.sampling_temperature =
      number_of(member(json, where, "sampling_temperature"), where, "sampling_temperature", 0, 100);
  return calibration;
}

std::optional<DraftCalibration> read_calibration(const std::string& folder) {
  const std::string path = fs::path(folder) / kCalibrationName;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return read_calibration_file(path, folder);
}

DraftCalibration read_calibration_file(const std::string& path, const std::string& folder) {
  DraftCalibration calibration = parse_calibration(read_text_file(path, kMaxBytes), path);
  const std::string fingerprint = model_fingerprint(folder);
  if (calibration.fingerprint == fingerprint) return calibration;
  throw Error(
      ErrorCode::kInvalidFile,
      fmt::format(
          "{}: it is of the model {} with fingerprint {}, but {} has fingerprint {}; {}",
          path,
          calibration.model,
          calibration.fingerprint,
          folder,
          fingerprint,
          kAdvice
      )
  );
}

}  // namespace di::engine
