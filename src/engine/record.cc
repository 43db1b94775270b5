#include "engine/record.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "engine/option_table.h"
#include "engine/record_tokens.h"
#include "sampling/params_json.h"

namespace di::engine {
namespace {

constexpr int64_t kFormat = 1;
constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxIdBytes = 1024;
constexpr const char* kShaping[] = {"context", "replay", "replay_keep"};

RecordHeader header_from(const Json& json) {
  const int64_t format = json.at("deepinfer_record").as_integer();
  if (format != kFormat) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("the record has format {}, this program reads {}", format, kFormat)
    );
  }
  RecordHeader header{
      .model = json.at("model").as_string(),
      .fingerprint = json.at("fingerprint").as_string(),
      .backend = json.at("backend").as_string(),
      .isa = json.at("isa").as_string(),
      .has_content = json.at("content").as_bool()};
  for (const char* name : kShaping) {
    find_option(name).set(header.options, json.at("options").at(name));
  }
  return header;
}

std::string short_text(const Json& json) {
  const std::string& text = json.as_string();
  if (text.size() > kMaxIdBytes) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("a name has more than {} bytes", kMaxIdBytes));
  }
  return text;
}

double seconds_of(const Json& json) {
  const double seconds = json.as_number();
  if (!(seconds >= 0 && seconds <= 1e12)) {
    throw Error(ErrorCode::kInvalidFile, fmt::format("{} is no time in seconds", seconds));
  }
  return seconds;
}

RecordedRequest request_from(const Json& json, bool content) {
  RecordedRequest recorded;
  Request& request = recorded.request;
  request.id = short_text(json.at("id"));
  recorded.arrival = seconds_of(json.at("arrival"));
  recorded.num_prompt_tokens = json.at("prompt_tokens").as_integer();
  recorded.prompt_hash = short_text(json.at("prompt_hash"));
  request.sampling = sampling::params_from_json(json.at("sampling"));
  request.priority =
      static_cast<int>(std::clamp<int64_t>(json.at("priority").as_integer(), -100, 100));
  request.timeout_seconds = seconds_of(json.at("timeout_seconds"));
  request.detokenize = json.at("detokenize").as_bool();
  if (!content) return recorded;
  request.user = short_text(json.at("user"));
  for (const Json& id : json.at("prompt").as_array())
    request.prompt_token_ids.push_back(token_of(id));
  return recorded;
}

RecordedChoice choice_from(const Json& json, bool content) {
  RecordedChoice choice{
      .index = json.at("index").as_integer(),
      .finish_reason = short_text(json.at("finish_reason")),
      .num_tokens = json.at("num_tokens").as_integer(),
      .token_hash = short_text(json.at("token_hash")),
      .text_hash = short_text(json.at("text_hash"))};
  if (content) choice.tokens = tokens_from(json.at("tokens"));
  if (content && std::ssize(choice.tokens) != choice.num_tokens) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "choice {} has {} tokens and says {}",
            choice.index,
            choice.tokens.size(),
            choice.num_tokens
        )
    );
  }
  return choice;
}

void finish_from(const Json& json, bool content, RecordedRequest& request) {
  request.finished = true;
  request.end = seconds_of(json.at("time"));
  for (const Json& entry : json.at("choices").as_array()) {
    request.choices.push_back(choice_from(entry, content));
    if (request.choices.back().index != std::ssize(request.choices) - 1) {
      throw Error(ErrorCode::kInvalidFile, "choices are expected in the order of their index");
    }
  }
  if (std::ssize(request.choices) != request.request.sampling.n) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "the request has {} choices, its end has {}",
            request.request.sampling.n,
            request.choices.size()
        )
    );
  }
  if (content) request.prompt_logprobs = tokens_from(json.at("prompt_logprobs"));
}

/// Reads lines one after the other.
class RecordParser {
 public:
  void read(std::string_view line, const std::string& where) {
    const Json json = Json::parse(line, where, {.max_depth = 8, .reject_duplicate_keys = true});
    if (!has_header_) {
      record_.header = header_from(json);
      has_header_ = true;
      return;
    }
    const bool content = record_.header.has_content;
    std::vector<RecordedRequest>& requests = record_.requests;
    if (const Json* number = json.find("request")) {
      if (number->as_integer() != std::ssize(requests)) {
        throw Error(ErrorCode::kInvalidFile, fmt::format("request {} comes next", requests.size()));
      }
      requests.push_back(request_from(json, content));
      return;
    }
    const int64_t number = json.at("finished").as_integer();
    const bool exists = number >= 0 && number < std::ssize(requests);
    if (!exists || requests[static_cast<std::size_t>(number)].finished) {
      throw Error(ErrorCode::kInvalidFile, fmt::format("no request {} runs", number));
    }
    finish_from(json, content, requests[static_cast<std::size_t>(number)]);
  }

  Record take() { return std::move(record_); }
  bool has_header() const { return has_header_; }

 private:
  Record record_;
  bool has_header_ = false;
};

/// What a record without content may not hold of the parameters.
sampling::SamplingParams without_content(sampling::SamplingParams params) {
  params.stop.clear();
  params.golden_token_ids.clear();
  return params;
}

}  // namespace

bool RecordedChoice::ended_from_outside() const {
  return finish_reason == name_of(FinishReason::kAborted) ||
         finish_reason == name_of(FinishReason::kTimeout);
}

Record parse_record(std::string_view text, const std::string& where) {
  RecordParser parser;
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string place = fmt::format("{} line {}", where, number);
    if (end > kMaxLineBytes) {
      throw Error(
          ErrorCode::kInvalidFile,
          fmt::format("{}: it has {} bytes, at most {} are read", place, end, kMaxLineBytes)
      );
    }
    try {
      parser.read(text.substr(0, end), place);
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool placed = message.starts_with(place);
      throw Error(error.code(), placed ? message : fmt::format("{}: {}", place, message));
    }
    text.remove_prefix(end + 1);
  }
  if (!parser.has_header()) {
    throw Error(
        ErrorCode::kInvalidFile, fmt::format("{}: no record; its first line is missing", where)
    );
  }
  Record record = parser.take();
  record.truncated = !text.empty();
  return record;
}

Record read_record(const std::string& path) {
  const MappedFile file = MappedFile::open(path);
  const std::span<const std::byte> bytes = file.bytes();
  return parse_record({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

std::string header_line(const RecordHeader& header) {
  Json::Object options;
  for (const char* name : kShaping)
    options.emplace_back(name, find_option(name).get(header.options));
  return Json(Json::Object{
                  {"deepinfer_record", kFormat},
                  {"model", header.model},
                  {"fingerprint", header.fingerprint},
                  {"backend", header.backend},
                  {"isa", header.isa},
                  {"content", header.has_content},
                  {"options", std::move(options)}}
  ).dump();
}

std::string request_line(int64_t number, const RecordedRequest& recorded, bool content) {
  const Request& request = recorded.request;
  Json::Object line{
      {"request", number},
      {"id", request.id},
      {"arrival", recorded.arrival},
      {"prompt_tokens", recorded.num_prompt_tokens},
      {"prompt_hash", recorded.prompt_hash},
      {"sampling",
       sampling::to_json(content ? request.sampling : without_content(request.sampling))},
      {"priority", request.priority},
      {"timeout_seconds", request.timeout_seconds},
      {"detokenize", request.detokenize}};
  if (content) {
    Json::Array prompt;
    for (const int32_t id : request.prompt_token_ids)
      prompt.emplace_back(int64_t{id});
    line.emplace_back("user", request.user);
    line.emplace_back("prompt", std::move(prompt));
  }
  return Json(std::move(line)).dump();
}

std::string finished_line(int64_t number, const RecordedRequest& recorded, bool content) {
  Json::Array choices;
  for (const RecordedChoice& choice : recorded.choices) {
    Json::Object entry{
        {"index", choice.index},
        {"finish_reason", choice.finish_reason},
        {"num_tokens", choice.num_tokens},
        {"token_hash", choice.token_hash},
        {"text_hash", choice.text_hash}};
    if (content) entry.emplace_back("tokens", tokens_json(choice.tokens));
    choices.emplace_back(std::move(entry));
  }
  Json::Object line{{"finished", number}, {"time", recorded.end}, {"choices", std::move(choices)}};
  if (content) line.emplace_back("prompt_logprobs", tokens_json(recorded.prompt_logprobs));
  return Json(std::move(line)).dump();
}

}  // namespace di::engine
