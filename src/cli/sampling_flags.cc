#include "cli/sampling_flags.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "sampling/params_json.h"

namespace di::cli {
namespace {

constexpr int64_t kDefaultMaxTokens = 512;
constexpr const char* kGroup = "Sampling";

enum class Kind {
  kNumber,
  kSwitch,
  kIds,     ///< "1,2,3"
  kBiases,  ///< "5:-1.5,7:2"
  kTexts,   ///< the flag may be repeated
};

struct SamplingFlag {
  const char* name;  ///< of the parameter
  Kind kind;
  const char* type;
  const char* help;
  bool always;  ///< also where one answer is all there is
};

const SamplingFlag kFlags[] = {
    {"temperature",
     Kind::kNumber,
     "FLOAT",
     "0: always the best token (default: the model's generation_config.json)",
     true},
    {"top_p",
     Kind::kNumber,
     "FLOAT",
     "Draw from the fewest tokens that reach this probability (default: the model's)",
     true},
    {"top_k", Kind::kNumber, "INT=0", "Draw from this many best tokens; 0: all", true},
    {"min_p",
     Kind::kNumber,
     "FLOAT=0",
     "Draw from tokens with at least this share of the best one's probability",
     true},
    {"repetition_penalty",
     Kind::kNumber,
     "FLOAT=1",
     "Above 1 makes tokens of prompt and answer less likely",
     true},
    {"presence_penalty",
     Kind::kNumber,
     "FLOAT=0",
     "Above 0 makes tokens of the answer less likely",
     true},
    {"frequency_penalty", Kind::kNumber, "FLOAT=0", "The same, once for each time they came", true},
    {"logit_bias", Kind::kBiases, "ID:BIAS,...", "Added to the logits of these tokens", true},
    {"allowed_token_ids", Kind::kIds, "ID,...", "Draw nothing else", true},
    {"banned_token_ids", Kind::kIds, "ID,...", "Draw none of these", true},
    {"max_tokens", Kind::kNumber, "INT=512", "Longest answer, in tokens", true},
    {"min_tokens", Kind::kNumber, "INT=0", "Shortest answer, in tokens", false},
    {"first_n_token_no_eos",
     Kind::kNumber,
     "INT=0",
     "The end token is not drawn among so many first ones",
     true},
    {"ignore_eos", Kind::kSwitch, "", "Go on after the end token", true},
    {"stop_token_ids", Kind::kIds, "ID,...", "Each ends the answer as the end token does", true},
    {"stop", Kind::kTexts, "TEXT", "End the answer before this text; may be repeated", true},
    {"n", Kind::kNumber, "INT=1", "Independent answers to the same prompt", false},
    {"logprobs", Kind::kSwitch, "", "Report the logprob of each token (with JSON output)", false},
    {"top_logprobs", Kind::kNumber, "INT=0", "Report so many best tokens beside each", false},
    {"prompt_logprobs", Kind::kSwitch, "", "Report the logprob of each prompt token", false},
    {"processed_logprobs",
     Kind::kSwitch,
     "",
     "Report logprobs of what was drawn from, after all of the above, not the model's own",
     false},
    {"golden_token_ids", Kind::kIds, "ID,...", "Force these tokens; -1 leaves one free", false},
};

std::string flag_of(const SamplingFlag& flag) {
  std::string text = std::string("--") + flag.name;
  std::replace(text.begin(), text.end(), '_', '-');
  return std::string(flag.name) == "max_tokens" ? "-n," + text : text;
}

/// The number that a text spells, or the text itself, which is then refused by its parameter.
Json number_of(const std::string& text) {
  try {
    Json json = Json::parse(text, "");
    if (json.is_number()) return json;
  } catch (const Error&) {
    return text;
  }
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Json biases_of(const std::string& text) {
  Json::Object biases;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t colon = std::min(entry.find(':'), entry.size());
    const std::string bias = colon < entry.size() ? entry.substr(colon + 1) : "";
    biases.emplace_back(entry.substr(0, colon), number_of(bias));
  }
  return biases;
}

Json value_of(Kind kind, const std::vector<std::string>& texts) {
  if (kind == Kind::kNumber) return number_of(texts.back());
  if (kind == Kind::kBiases) return biases_of(texts.back());
  Json::Array values;
  if (kind == Kind::kTexts) {
    for (const std::string& text : texts)
      values.emplace_back(text);
  } else {
    for (const std::string& text : split(texts.back(), ','))
      values.push_back(number_of(text));
  }
  return values;
}

/// Sets what the model's authors recommend, as far as it is there.
void add_model_defaults(const std::string& folder, Json& params) {
  const std::string path = folder + "/generation_config.json";
  if (folder.empty() || !std::filesystem::exists(path)) return;
  const Json config = Json::parse(read_text_file(path, 1 << 20), path);
  for (const char* key : {"temperature", "top_p"}) {
    if (const Json* value = config.find(key)) params.set(key, value->as_number());
  }
}

}  // namespace

void SamplingFlags::add(CLI::App& command, bool all) {
  for (const SamplingFlag& flag : kFlags) {
    if (!all && !flag.always) continue;
    CLI::Option* option = nullptr;
    if (flag.kind == Kind::kSwitch) {
      option = command.add_flag(flag_of(flag), switches_[flag.name], flag.help);
    } else {
      option = command.add_option(flag_of(flag), texts_[flag.name], flag.help);
      option->type_name(flag.type)->allow_extra_args(false);
      if (flag.kind != Kind::kTexts) option->expected(1);
    }
    option->group(kGroup);
  }
}

Json SamplingFlags::json(const std::string& model_folder) const {
  Json params = Json::Object{};
  add_model_defaults(model_folder, params);
  params.set("max_tokens", kDefaultMaxTokens);
  for (const SamplingFlag& flag : kFlags) {
    const auto given = switches_.find(flag.name);
    if (given != switches_.end() && given->second) params.set(flag.name, true);
    const auto texts = texts_.find(flag.name);
    if (texts == texts_.end() || texts->second.empty()) continue;
    params.set(flag.name, value_of(flag.kind, texts->second));
  }
  return params;
}

sampling::SamplingParams SamplingFlags::params(const std::string& model_folder) const {
  return sampling::params_from_json(json(model_folder));
}

}  // namespace di::cli
