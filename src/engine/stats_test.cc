#include "engine/stats.h"

#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "engine/stats_window.h"

namespace di::engine {
namespace {

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.as_object())
    keys.insert(key);
  return keys;
}

std::vector<std::string> keys_of(const std::string& line) {
  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    keys.push_back(line.substr(begin, line.find('=', begin) - begin));
    begin = end + 1;
  }
  return keys;
}

TEST(Distribution, NamesTheMeasurementsThatManyDoNotExceed) {
  std::vector<double> values;
  for (int i = 200; i >= 1; --i)
    values.push_back(i);
  EXPECT_EQ(
      distribution_of(values),
      (Distribution{.mean = 100.5, .p50 = 100, .p90 = 180, .p99 = 198, .max = 200})
  );
  EXPECT_EQ(
      distribution_of({7}), (Distribution{.mean = 7, .p50 = 7, .p90 = 7, .p99 = 7, .max = 7})
  );
  EXPECT_FALSE(distribution_of({}).has_value());
}

/// A window in which every field has a value.
Stats full_stats() {
  StatsWindow window({.max_num_batched_tokens = 64, .peak_flops = 1e6}, 0);
  StepRecord step;
  step.time = 2;
  step.step_seconds = 0.01;
  step.num_decode_rows = 1;
  step.num_output_tokens = 1;
  step.num_prefill_rows = 32;
  step.num_cached_tokens = 1;
  step.add_keys(5, 1);
  step.flops = {.attention = 10, .total = 100'000, .unweighted = 50'000};
  step.expert_max = 3;
  step.expert_mean = 2;
  step.drafts = {
      .verified = {2, 1},
      .accepted = {1, 1},
      .expected = {1.5, 0.5},
      .num_sequences = 1,
      .num_tokens = 3};
  step.ttft_seconds = {0.25};
  step.finished = {
      {.prompt_tokens = 9, .output_tokens = 11, .ttft_seconds = 0.5, .total_seconds = 1.5}};
  window.add_request();
  window.add_step(step);
  Stats stats = window.stats(
      4, {.num_running = 1, .blocks_used = 1, .blocks_total = 4, .slots_used = 1, .slots_total = 2}
  );
  stats.draft_cost_error = 0.02;
  stats.draft_advantage = 1.5;
  return stats;
}

TEST(StatsJson, EveryFieldIsThereWhetherItHasAValueOrNot) {
  const Json full = stats_json(full_stats());
  const Json empty = stats_json(Stats{});
  EXPECT_EQ(keys_of(full), keys_of(empty));
  for (const auto& [key, value] : full.as_object())
    EXPECT_FALSE(value.is_null()) << key;
  EXPECT_TRUE(empty.at("ttft_seconds").is_null());
  EXPECT_EQ(full.at("ttft_seconds").at("p99").as_number(), 0.25);
  EXPECT_EQ(full.at("draft_acceptance_by_position").as_array().size(), 2u);
  EXPECT_EQ(full.at("total_endings").at("eos").as_integer(), 1);
  EXPECT_EQ(Json::parse(full.dump(), "stats"), full);
}

TEST(StatsLine, HoldsTheSameKeysWhateverIsKnown) {
  const std::string full = stats_line(full_stats());
  const std::string empty = stats_line(Stats{});
  EXPECT_EQ(keys_of(full), keys_of(empty));
  EXPECT_EQ(full.find('\n'), std::string::npos);
  EXPECT_EQ(full.find("=-"), std::string::npos) << full;
  EXPECT_NE(empty.find(" ttft_ms=- "), std::string::npos) << empty;
  EXPECT_NE(full.find(" ttft_ms=250.0/250.0/250.0 "), std::string::npos) << full;
  EXPECT_NE(full.find(" output_tokens/s=0.2 "), std::string::npos) << full;
  EXPECT_NE(full.find(" blocks=1/4 "), std::string::npos) << full;
  EXPECT_NE(full.find(" draft_acceptance_by_position=50.0%/100.0% "), std::string::npos) << full;
  EXPECT_NE(full.find(" utilization=2.5% "), std::string::npos) << full;
}

TEST(MetricsPage, HasARowForEachFieldInOrder) {
  std::ifstream page(DI_METRICS_PAGE);
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| `", 0) == 0) rows.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  std::vector<std::string> fields;
  const Json json = stats_json(Stats{});
  for (const auto& [key, value] : json.as_object())
    fields.push_back(key);
  EXPECT_EQ(rows, fields);
}

}  // namespace
}  // namespace di::engine
