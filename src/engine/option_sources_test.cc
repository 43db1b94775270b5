#include "engine/option_sources.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/option_table.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A config file that lives as long as the test.
class OptionSourcesTest : public ::testing::Test {
 protected:
  ~OptionSourcesTest() override { fs::remove(path_); }

  std::string config(const std::string& text) const {
    std::ofstream(path_) << text;
    return path_;
  }

  /// The message that merging fails with.
  static std::string complaint(const OptionSources& sources) {
    try {
      merge_options(sources);
    } catch (const Error& error) {
      return error.what();
    }
    return "no complaint";
  }

  static OptionOrigin origin_of(const MergedOptions& merged, const std::string& name) {
    const auto index = &find_option(name) - option_table().data();
    return merged.origins[static_cast<std::size_t>(index)];
  }

  const std::string path_ =
      (fs::temp_directory_path() / ("deepinfer_options_" + std::to_string(getpid()))).string();
};

TEST_F(OptionSourcesTest, LaterSourcesOverruleEarlierOnes) {
  const MergedOptions merged = merge_options(
      {.config = config(R"({"threads": 1, "chunk": 2, "context": 3, "async_scheduling": false})"),
       .environment = {{"DEEPINFER_CHUNK", "20"}, {"DEEPINFER_CONTEXT", "30"}},
       .arguments = {{"context", "300"}}}
  );
  EXPECT_EQ(merged.options.threads, 1);
  EXPECT_EQ(merged.options.chunk, 20);
  EXPECT_EQ(merged.options.context, 300);
  EXPECT_FALSE(merged.options.async_scheduling);
  EXPECT_EQ(origin_of(merged, "threads"), (OptionOrigin{OptionSource::kFile, path_}));
  EXPECT_EQ(
      origin_of(merged, "chunk"), (OptionOrigin{OptionSource::kEnvironment, "DEEPINFER_CHUNK"})
  );
  EXPECT_EQ(origin_of(merged, "context"), (OptionOrigin{OptionSource::kCommandLine, "--context"}));
  EXPECT_EQ(origin_of(merged, "seed"), OptionOrigin{});
  EXPECT_EQ(
      options_line(merged, false),
      "options: threads=1 (" + path_ +
          "), context=300 (--context), chunk=20 (DEEPINFER_CHUNK), async_scheduling=off (" + path_ +
          ")"
  );
  const Json json = options_json(merged);
  EXPECT_EQ(json.at("chunk").at("value"), Json(20));
  EXPECT_EQ(json.at("chunk").at("source"), Json("environment"));
  EXPECT_EQ(json.as_object().size(), option_table().size());
}

TEST_F(OptionSourcesTest, TellNothingWhenAllIsAtItsDefault) {
  EXPECT_EQ(options_line(merge_options({}), false), "");
  const std::string all = options_line(merge_options({}), true);
  EXPECT_NE(all.find("max_num_seqs=64 (default)"), std::string::npos) << all;
}

TEST_F(OptionSourcesTest, UnknownNamesAreRefusedWithASuggestion) {
  EXPECT_NE(
      complaint({.config = config(R"({"thread": 1})")}).find("did you mean threads?"),
      std::string::npos
  );
  EXPECT_NE(
      complaint({.environment = {{"DEEPINFER_THREAD", "1"}}}
      ).find("did you mean DEEPINFER_THREADS?"),
      std::string::npos
  );
  EXPECT_NE(complaint({.arguments = {{"chunks", "1"}}}).find("chunk"), std::string::npos);
}

TEST_F(OptionSourcesTest, BadValuesNameTheirSource) {
  EXPECT_EQ(
      complaint({.environment = {{"DEEPINFER_THREADS", "many"}}}),
      "DEEPINFER_THREADS: threads is \"many\", it must be a whole number from 0 to 1024"
  );
  EXPECT_EQ(
      complaint({.arguments = {{"memory_utilization", "1.5"}}}),
      "--memory-utilization: memory_utilization is 1.5, it must be a number from 0.01 to 1"
  );
  EXPECT_EQ(
      complaint({.config = config(R"({"threads": "2"})")}),
      path_ + ": threads is \"2\", it must be a whole number from 0 to 1024"
  );
  EXPECT_NE(complaint({.config = config("[1]")}).find("expected an object"), std::string::npos);
  EXPECT_NE(
      complaint({.config = config(R"({"seed": 1, "seed": 2})")}).find(path_), std::string::npos
  );
  EXPECT_NE(complaint({.config = "/nowhere.json"}).find("/nowhere.json"), std::string::npos);
}

TEST_F(OptionSourcesTest, VariablesOfTheOriginalSetTheirOption) {
  const MergedOptions merged = merge_options(
      {.environment =
           {{"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "0"},
            {"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "compact"},
            {"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "512"},
            {"DEEPINFER_DECODE_TOKEN_BLACKLIST", "0..3,7"},
            {"DEEPINFER_HF_MODEL_DIR", "somewhere"}}}
  );
  EXPECT_FALSE(merged.options.async_scheduling);
  EXPECT_EQ(merged.options.replay, "compact");
  EXPECT_EQ(merged.options.replay_keep, 512);
  EXPECT_EQ(merged.options.banned_tokens, "0..3,7");
  EXPECT_EQ(merged.options.model, "somewhere");
  EXPECT_TRUE(merged.notes.empty());
}

TEST_F(OptionSourcesTest, VariablesOfTheOriginalThatDoNothingAreNotedWithTheReason) {
  const MergedOptions merged = merge_options({.environment = {{"DEEPINFER_BATCH_INVARIANT", "1"}}});
  ASSERT_EQ(merged.notes.size(), 1);
  EXPECT_EQ(
      merged.notes[0],
      "DEEPINFER_BATCH_INVARIANT has no effect: results never depend on the batch; nothing turns "
      "that off"
  );
}

TEST_F(OptionSourcesTest, TwoVariablesForOneOptionAreRefused) {
  const std::string message =
      complaint({.environment = {{"DEEPINFER_MODEL", "a"}, {"DEEPINFER_HF_MODEL_DIR", "b"}}});
  EXPECT_NE(message.find("DEEPINFER_HF_MODEL_DIR and DEEPINFER_MODEL"), std::string::npos)
      << message;
}

TEST_F(OptionSourcesTest, TheEnvironmentIsReadByPrefixAndEmptyMeansUnset) {
  setenv("DEEPINFER_CHUNK", "12", 1);
  setenv("DEEPINFER_THREADS", "", 1);
  const Environment environment = read_environment();
  unsetenv("DEEPINFER_CHUNK");
  unsetenv("DEEPINFER_THREADS");
  EXPECT_EQ(environment.at("DEEPINFER_CHUNK"), "12");
  EXPECT_FALSE(environment.contains("DEEPINFER_THREADS"));
  EXPECT_FALSE(environment.contains("PATH"));
}

TEST(OptionTable, ReadsBackWhatItSays) {
  for (const OptionInfo& option : option_table()) {
    const Json value = option.get(EngineOptions());
    EngineOptions options;
    option.set(options, option.parse(option.text_of(value)));
    EXPECT_EQ(option.get(options), value) << option.name;
  }
}

TEST(OptionTable, GivesNoNameTwice) {
  std::set<std::string> names;
  for (const OptionInfo& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(names.insert(option.variable()).second) << option.name;
    const std::string letter(option.letter == 0 ? 0 : 1, option.letter);
    EXPECT_TRUE(letter.empty() || names.insert(letter).second) << option.name;
  }
  for (const OriginalVariable& original : original_variables()) {
    EXPECT_TRUE(names.insert(original.name).second) << original.name;
    EXPECT_NE(original.option.empty(), original.reason.empty()) << original.name;
  }
}

TEST(OptionTable, KeepsSeedsOf64Bits) {
  EngineOptions options;
  const OptionInfo& seed = find_option("seed");
  seed.set(options, seed.parse("18446744073709551615"));
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_THROW(seed.set(options, seed.parse("-1")), Error);
  EXPECT_THROW(seed.set(options, seed.parse("18446744073709551616")), Error);
}

/// Fails for the first row that a page lacks, and prints all rows for whoever mends the page.
void expect_rows(const std::string& page, const std::vector<std::string>& rows) {
  const std::string text = read_all(page);
  for (const std::string& row : rows) {
    if (text.find(row + "\n") == std::string::npos) {
      FAIL() << page << " lacks a row; it should have\n"
             << fmt::format("{}", fmt::join(rows, "\n"));
    }
  }
}

TEST(OptionTable, HasEveryOptionOnItsPage) {
  std::vector<std::string> rows;
  for (const OptionInfo& option : option_table()) {
    const std::string value = option.text_of(option.get(EngineOptions()));
    rows.push_back(fmt::format(
        "| `{}` | {} | {} | {} | {} |",
        option.name,
        value.empty() ? "none" : value,
        option.unit.empty() ? "–" : option.unit,
        option.range_text(),
        option.help
    ));
  }
  expect_rows(DI_OPTIONS_PAGE, rows);
}

TEST(OptionTable, HasEveryVariableOfTheOriginalOnItsPage) {
  std::vector<std::string> rows;
  for (const OriginalVariable& original : original_variables()) {
    rows.push_back(
        original.option.empty()
            ? fmt::format("| `{}` | no | {} |", original.name, original.reason)
            : fmt::format("| `{}` | yes | sets `{}` |", original.name, original.option)
    );
  }
  expect_rows(DI_ENVIRONMENT_PAGE, rows);
}

}  // namespace
}  // namespace di::engine
