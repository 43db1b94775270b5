#include "engine/draft_profile.h"

#include <cstdint>
#include <exception>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/write_file.h"
#include "engine/record_tokens.h"

namespace di::engine {
namespace {

constexpr const char* kFormat = "deepinfer draft costs";
constexpr int64_t kVersion = 3;
constexpr std::size_t kMostBytes = std::size_t{256} << 10;
constexpr std::size_t kMostPoints = 256;

Json json_of(const DraftProfileKey& key) {
  Json json;
  json.set("model", key.model);
  json.set("device", key.device);
  json.set("build", key.build);
  json.set("limits", key.limits);
  return json;
}

Json json_of(const sched::CostTable& table) {
  Json::Array points;
  for (const sched::CostTable::Point& point : table.points) {
    Json json;
    json.set("rows", point.rows);
    json.set("seconds", point.seconds);
    json.set("weight", point.weight);
    json.set("keys", point.keys);
    json.set("experts", point.experts);
    points.push_back(std::move(json));
  }
  Json json;
  json.set("points", std::move(points));
  json.set("rise_per_key", table.rise_per_key);
  json.set("seconds_per_expert", table.seconds_per_expert);
  json.set("drafting_base", table.drafting_base);
  json.set("drafting_each", table.drafting_each);
  json.set("drafting_weight", table.drafting_weight);
  return json;
}

sched::CostTable table_of(const Json& json) {
  sched::CostTable table;
  const Json::Array& points = json.at("points").as_array();
  if (points.size() > kMostPoints) throw Error(ErrorCode::kInvalidFile, "too many points");
  for (const Json& point : points) {
    table.points.push_back(
        {point.at("rows").as_integer(),
         point.at("seconds").as_number(),
         point.at("weight").as_number(),
         point.at("keys").as_number(),
         point.at("experts").as_number()}
    );
  }
  table.rise_per_key = json.at("rise_per_key").as_number();
  table.seconds_per_expert = json.at("seconds_per_expert").as_number();
  table.drafting_base = json.at("drafting_base").as_number();
  table.drafting_each = json.at("drafting_each").as_number();
  table.drafting_weight = json.at("drafting_weight").as_number();
  return table;
}

Json json_of(const std::vector<sched::DraftVerdict>& verdicts) {
  Json::Array array;
  for (const sched::DraftVerdict& verdict : verdicts) {
    Json json;
    json.set("octave", verdict.octave);
    json.set("advantage", verdict.advantage);
    json.set("resting", verdict.resting);
    json.set("failed", verdict.failed);
    json.set("debt", verdict.debt);
    array.push_back(std::move(json));
  }
  return array;
}

std::vector<sched::DraftVerdict> verdicts_of(const Json& json) {
  std::vector<sched::DraftVerdict> verdicts;
  for (const Json& verdict : json.as_array()) {
    verdicts.push_back(
        {.octave = verdict.at("octave").as_integer(),
         .advantage = verdict.at("advantage").as_number(),
         .resting = verdict.at("resting").as_bool(),
         .failed = verdict.at("failed").as_integer(),
         .debt = verdict.at("debt").as_number()}
    );
  }
  return verdicts;
}

}  // namespace

std::string draft_profile_path(const std::string& folder, const DraftProfileKey& key) {
  const std::string hash = hash_of(json_of(key).dump()).substr(0, 32);
  return (std::filesystem::path(folder) / fmt::format("draft_costs.{}.json", hash)).string();
}

DraftProfile load_draft_profile(const std::string& folder, const DraftProfileKey& key) {
  try {
    const std::string path = draft_profile_path(folder, key);
    const JsonLimits limits{.max_depth = 8, .reject_duplicate_keys = true};
    const Json json = Json::parse(read_text_file(path, kMostBytes), "draft costs", limits);
    if (json.at("format").as_string() != kFormat) return {{}, "is of another format"};
    if (json.at("version").as_integer() != kVersion) return {{}, "is of another version"};
    if (json.at("key") != json_of(key)) return {{}, "belongs to another model, device or build"};
    sched::DraftKnowledge knowledge{table_of(json.at("costs")), verdicts_of(json.at("verdicts"))};
    if (!knowledge.is_sound()) return {{}, "holds numbers that no step can have"};
    return {std::move(knowledge), ""};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

std::string save_draft_profile(
    const std::string& folder, const DraftProfileKey& key, const sched::DraftKnowledge& knowledge
) {
  try {
    if (!knowledge.is_sound()) return "holds numbers that no step can have";
    Json json;
    json.set("format", kFormat);
    json.set("version", kVersion);
    json.set("key", json_of(key));
    json.set("costs", json_of(knowledge.costs));
    json.set("verdicts", json_of(knowledge.verdicts));
    std::filesystem::create_directories(folder);
    write_file_at_once(draft_profile_path(folder, key), json.dump() + "\n");
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace di::engine
