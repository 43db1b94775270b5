// Costs on disk: what was kept comes back, and nothing that a file may hold does harm.
#include "engine/draft_profile.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace di::engine {
namespace {

namespace fs = std::filesystem;

class DraftProfileTest : public ::testing::Test {
 protected:
  DraftProfileTest()
      : folder_(::testing::TempDir() + "draft_profile_" + std::to_string(::getpid()) + "/deep") {
    sched::CostTable& table = known_.costs;
    table.points = {{1, 0.01, 32, 500, 6}, {6, 0.0125, 4.5, 3000, 31.5}, {64, 0.05, 0.25, 0, 0}};
    table.rise_per_key = 1.0 / 3e9;
    table.seconds_per_expert = 1e-5;
    table.drafting_base = 0.001;
    table.drafting_each = 2e-5;
    table.drafting_weight = 17;
    known_.verdicts = {{0, 1.5, false, 0, -2.5}, {3, 0.75, true, 4, 12}};
  }
  ~DraftProfileTest() override { fs::remove_all(fs::path(folder_).parent_path()); }

  std::string path() const { return draft_profile_path(folder_, key_); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(path(), std::ios::binary) << text;
  }
  void expect_refused(const std::string& text, const std::string& why = "") const {
    write(text);
    const DraftProfile found = load_draft_profile(folder_, key_);
    EXPECT_FALSE(found.knowledge.has_value()) << text;
    EXPECT_FALSE(found.reason.empty());
    EXPECT_NE(found.reason.find(why), std::string::npos) << found.reason;
  }
  std::string with(const std::string& from, const std::string& to) const {
    std::string changed = text();
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  }

  std::string folder_;
  DraftProfileKey key_{"model", "cpu avx512 2 threads", "0.1.0", "5 drafts"};
  sched::DraftKnowledge known_;
};

TEST_F(DraftProfileTest, WhatWasKeptComesBack) {
  EXPECT_EQ(save_draft_profile(folder_, key_, known_), "");
  const DraftProfile found = load_draft_profile(folder_, key_);
  ASSERT_TRUE(found.knowledge.has_value()) << found.reason;
  EXPECT_EQ(found.reason, "");
  EXPECT_EQ(*found.knowledge, known_);
}

TEST_F(DraftProfileTest, AnotherKeyHasAnotherFile) {
  EXPECT_EQ(save_draft_profile(folder_, key_, known_), "");
  for (std::string DraftProfileKey::*part :
       {&DraftProfileKey::model,
        &DraftProfileKey::device,
        &DraftProfileKey::build,
        &DraftProfileKey::limits}) {
    DraftProfileKey other = key_;
    other.*part += "x";
    EXPECT_NE(draft_profile_path(folder_, other), path());
    EXPECT_FALSE(load_draft_profile(folder_, other).knowledge.has_value());
    // Not even when the file comes to lie there.
    fs::copy_file(path(), draft_profile_path(folder_, other));
    const DraftProfile found = load_draft_profile(folder_, other);
    EXPECT_FALSE(found.knowledge.has_value());
    EXPECT_NE(found.reason.find("belongs to another"), std::string::npos);
  }
}

TEST_F(DraftProfileTest, TouchesNothingElse) {
  fs::create_directories(folder_);
  const std::vector<std::string> others = {"precious.txt", "draft_costs.other.json", "x.tmp"};
  for (const std::string& name : others)
    std::ofstream(fs::path(folder_) / name) << "kept";
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(save_draft_profile(folder_, key_, known_), "");
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    count += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(count, others.size() + 1);
  for (const std::string& name : others)
    EXPECT_EQ(fs::file_size(fs::path(folder_) / name), 4u);
}

TEST_F(DraftProfileTest, BadFilesAreReasons) {
  EXPECT_FALSE(load_draft_profile(folder_, key_).knowledge.has_value());
  ASSERT_EQ(save_draft_profile(folder_, key_, known_), "");
  const std::string good = text();
  expect_refused("");
  expect_refused("{");
  expect_refused("[]");
  expect_refused("{\"format\": 3}");
  expect_refused(std::string(1 << 20, ' '), "too large");
  expect_refused(std::string(200, '['));
  const auto changed = [&](const std::string& from, const std::string& to) {
    write(good);
    return with(from, to);
  };
  expect_refused(changed("\"version\": 3", "\"version\": 1"), "version");
  expect_refused(changed("deepinfer draft costs", "something else"), "format");
  expect_refused(changed("\"rows\": 6", "\"rows\": 1"), "no step can have");
  expect_refused(changed("\"rows\": 6", "\"rows\": 6.5"));
  expect_refused(changed("\"rows\": 6", "\"rows\": 99999999999999999999999"));
  expect_refused(changed("0.0125", "-0.0125"), "no step can have");
  expect_refused(changed("0.0125", "1e308"), "no step can have");
  expect_refused(changed("0.0125", "null"));
  expect_refused(changed("\"points\": [", "\"points\": 3, \"more\": ["));
  expect_refused(changed("\"octave\": 3", "\"octave\": 0"), "no step can have");
  expect_refused(changed("\"octave\": 3", "\"octave\": 20"), "no step can have");
  expect_refused(changed("\"debt\": 12.0", "\"debt\": 1e9"), "no step can have");
  expect_refused(changed("\"failed\": 4", "\"failed\": -1"), "no step can have");
  expect_refused(changed("\"resting\": true", "\"resting\": 1"));
  expect_refused(changed("\"drafting_each\"", "\"drafting_base\""));
  write(good);
  EXPECT_TRUE(load_draft_profile(folder_, key_).knowledge.has_value());
}

TEST_F(DraftProfileTest, WhatIsNoFileIsAReason) {
  fs::create_directories(path());
  EXPECT_FALSE(load_draft_profile(folder_, key_).knowledge.has_value());
  EXPECT_NE(save_draft_profile(folder_, key_, known_), "");
  fs::remove(path());
  // A pipe that nobody writes to must not be waited for.
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(load_draft_profile(folder_, key_).reason.find("regular"), std::string::npos);
  EXPECT_EQ(save_draft_profile(folder_, key_, known_), "");
  EXPECT_TRUE(load_draft_profile(folder_, key_).knowledge.has_value());
}

TEST_F(DraftProfileTest, WhatCannotBeKeptIsAReason) {
  std::ofstream(folder_.substr(0, folder_.rfind('/'))) << "a file where a folder should be";
  EXPECT_NE(save_draft_profile(folder_, key_, known_), "");
  fs::remove(folder_.substr(0, folder_.rfind('/')));
  known_.costs.points[0].seconds = std::nan("");
  EXPECT_NE(save_draft_profile(folder_, key_, known_), "");
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(DraftProfileTest, RandomDamageDoesNoHarm) {
  ASSERT_EQ(save_draft_profile(folder_, key_, known_), "");
  const std::string good = text();
  std::mt19937 random(7);
  const std::string pieces[] = {
      "{",
      "}",
      "[",
      "]",
      ",",
      "\"",
      "1e999",
      "-1",
      "null",
      "true",
      "\\u0000",
      "0",
      ":",
      "NaN",
      "\xff"};
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random() % 256); break;
        case 1: text.erase(at, random() % 40); break;
        case 2: text.insert(at, pieces[random() % std::size(pieces)]); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 60));
      }
      if (text.empty()) text.push_back(' ');
    }
    write(text);
    const DraftProfile found = load_draft_profile(folder_, key_);
    EXPECT_EQ(found.knowledge.has_value(), found.reason.empty());
    if (found.knowledge.has_value()) {
      EXPECT_TRUE(found.knowledge->is_sound());
    }
  }
}

}  // namespace
}  // namespace di::engine
