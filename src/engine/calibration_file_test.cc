// The calibration file: what is written is read, what is broken is refused in words that help.
#include "engine/calibration_file.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/write_file.h"
#include "engine/record.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;

DraftCalibration example() {
  return {
      .model = "seedling",
      .fingerprint = std::string(64, 'a'),
      .temperatures = {1.25, 0.1 + 0.2, 20},
      .samples = {4000, 12, 0},
      .sampling_temperature = 0.7};
}

/// A folder that looks like a model's, removed at the end.
class CalibrationFile : public testing::Test {
 protected:
  CalibrationFile() {
    const std::string name = "deepinfer_calibration_" + std::to_string(::getpid());
    folder_ = fs::temp_directory_path() / name;
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << "{}";
    std::ofstream(folder_ / "model.safetensors") << "weights";
  }
  ~CalibrationFile() override { fs::remove_all(folder_); }

  void write(const DraftCalibration& calibration) const {
    write_file_at_once(folder_ / kCalibrationName, calibration_text(calibration));
  }

  fs::path folder_;
};

TEST_F(CalibrationFile, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_calibration(calibration_text(example()), "text"), example());
  EXPECT_EQ(read_calibration(folder_), std::nullopt) << "a model without one";
  DraftCalibration calibration = example();
  calibration.fingerprint = model_fingerprint(folder_);
  write(calibration);
  EXPECT_EQ(model_fingerprint(folder_), calibration.fingerprint) << "the file is no part of it";
  EXPECT_EQ(read_calibration(folder_), calibration);
  EXPECT_THROW(read_calibration_file(folder_ / "missing.json", folder_), Error);
}

TEST_F(CalibrationFile, OfAnotherModelIsRefusedNamingBoth) {
  write(example());
  try {
    read_calibration(folder_);
    FAIL() << "it was read";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    for (const std::string& part :
         {std::string(kCalibrationName),
          std::string("seedling"),
          example().fingerprint,
          folder_.string(),
          model_fingerprint(folder_),
          std::string("deepinfer calibrate")})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST_F(CalibrationFile, LongerDraftsTakeTheLastTemperature) {
  EXPECT_EQ(example().for_length(2), (std::vector<double>{1.25, 0.1 + 0.2}));
  EXPECT_EQ(example().for_length(5), (std::vector<double>{1.25, 0.1 + 0.2, 20, 20, 20}));
}

/// One member of a good file replaced, and what its refusal speaks of.
struct Broken {
  std::string key;
  Json value;
  std::string expected;
};

TEST(CalibrationText, RefusesEachBrokenMemberByItsName) {
  const Json good = Json::parse(calibration_text(example()), "good");
  const std::vector<Broken> all = {
      {"version", 2, "expected 1, found 2"},
      {"version", "1", "expected 1"},
      {"model", 5, "expected a string, found integer"},
      {"model", "two\nlines", "none for control"},
      {"model", std::string(256, 'm'), "255 bytes at most"},
      {"fingerprint", nullptr, "expected a string, found null"},
      {"temperatures", 1.5, "expected a list of 1 to 5, found number"},
      {"temperatures", Json::Array{}, "expected a list of 1 to 5, found 0"},
      {"temperatures", Json::Array(6, 1.0), "expected a list of 1 to 5, found 6"},
      {"temperatures", Json::Array{1.0, 1.0, 0.0}, "from 0.05 to 20, found 0"},
      {"temperatures", Json::Array{1.0, 1.0, -1}, "from 0.05 to 20, found -1"},
      {"temperatures", Json::Array{1.0, 1.0, 1e300}, "from 0.05 to 20"},
      {"temperatures", Json::Array{1.0, 1.0, "1"}, "found string"},
      {"samples", Json::Array{1, 2}, "expected a list of 3, found 2"},
      {"samples", Json::Array{1, 2, -3}, "found -3"},
      {"samples", Json::Array{1, 2, 2.5}, "expected a whole number"},
      {"samples", Json::Array{1, 2, UINT64_MAX}, "from 0 to 9e+15"},
      {"sampling_temperature", -0.5, "from 0 to 100"},
      {"sampling_temperature", true, "found boolean"}};
  for (const Broken& broken : all) {
    Json json = good;
    json.set(broken.key, broken.value);
    SCOPED_TRACE(json.dump());
    try {
      parse_calibration(json.dump(), "the file");
      ADD_FAILURE() << "it was read";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
      EXPECT_TRUE(message.starts_with("the file: " + broken.key)) << message;
      EXPECT_NE(message.find(broken.expected), std::string::npos) << message;
      EXPECT_NE(message.find("delete it"), std::string::npos) << message;
    }
  }
}

TEST(CalibrationText, RefusesEveryMissingMember) {
  const Json good = Json::parse(calibration_text(example()), "good");
  for (std::size_t i = 0; i < good.as_object().size(); ++i) {
    Json json = good;
    const std::string key = json.as_object()[i].first;
    json.as_object().erase(json.as_object().begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(parse_calibration(json.dump(), "the file"), Error) << key;
  }
}

TEST(CalibrationText, SurvivesAnyDamage) {
  const std::string good = calibration_text(example());
  std::mt19937 random(1);
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good.substr(0, round % 3 == 0 ? random() % good.size() : good.size());
    for (unsigned i = random() % 4; i > 0 && !text.empty(); --i)
      text[random() % text.size()] = static_cast<char>(random());
    try {
      const DraftCalibration found = parse_calibration(text, "the file");
      EXPECT_EQ(parse_calibration(calibration_text(found), "again"), found);
      ++read;
    } catch (const Error&) {
      continue;
    }
  }
  EXPECT_GT(read, 1000) << "some damage is harmless";
}

}  // namespace
}  // namespace di::engine
