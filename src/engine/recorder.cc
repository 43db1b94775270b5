#include "engine/recorder.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/record_tokens.h"

namespace di::engine {
namespace {

constexpr mode_t kOwnerOnly = 0600;

std::FILE* create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
  std::FILE* file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "w");
  if (file == nullptr) {
    throw Error(
        ErrorCode::kIo, fmt::format("{}: cannot record into it: {}", path, std::strerror(errno))
    );
  }
  return file;
}

}  // namespace

Recorder::Recorder(const std::string& path, const RecordHeader& header, double start)
    : path_(path), content_(header.has_content), start_(start), file_(create(path)) {
  write(header_line(header));
  flush();
}

Recorder::~Recorder() {
  flush();
  if (file_ != nullptr) std::fclose(file_);
}

void Recorder::add_request(const Request& request, double now) {
  Live live;
  live.recorded.request = request;
  live.recorded.arrival = now - start_;
  live.recorded.num_prompt_tokens = std::ssize(request.prompt_token_ids);
  live.recorded.prompt_hash = hash_of(request.prompt_token_ids);
  live.number = num_requests_++;
  write(request_line(live.number, live.recorded, content_));
  live.recorded.request.prompt_token_ids = {};
  const auto num_choices = static_cast<std::size_t>(request.sampling.n);
  live.recorded.choices.resize(num_choices);
  live.texts.resize(num_choices);
  live_[request.id].push_back(std::move(live));
}

void Recorder::add_news(const std::vector<Output>& news, double now) {
  for (const Output& output : news)
    add_output(output, now);
  flush();
}

void Recorder::add_output(const Output& output, double now) {
  const auto found = live_.find(output.request_id);
  if (found == live_.end()) return;
  Live& live = found->second.front();
  RecordedRequest& recorded = live.recorded;
  recorded.prompt_logprobs.insert(
      recorded.prompt_logprobs.end(), output.prompt_logprobs.begin(), output.prompt_logprobs.end()
  );
  for (const ChoiceOutput& news : output.choices) {
    RecordedChoice& choice = recorded.choices[static_cast<std::size_t>(news.index)];
    choice.index = news.index;
    choice.tokens.insert(choice.tokens.end(), news.tokens.begin(), news.tokens.end());
    choice.num_tokens = std::ssize(choice.tokens);
    live.texts[static_cast<std::size_t>(news.index)] += news.text;
    if (news.finish_reason) choice.finish_reason = name_of(*news.finish_reason);
  }
  if (!output.finished) return;
  recorded.end = now - start_;
  for (std::size_t i = 0; i < recorded.choices.size(); ++i) {
    recorded.choices[i].token_hash = hash_of(recorded.choices[i].tokens);
    recorded.choices[i].text_hash = hash_of(live.texts[i]);
  }
  write(finished_line(live.number, recorded, content_));
  found->second.pop_front();
  if (found->second.empty()) live_.erase(found);
}

void Recorder::write(const std::string& line) {
  if (file_ == nullptr) return;
  buffer_ += line;
  buffer_ += '\n';
}

void Recorder::flush() {
  if (file_ == nullptr || buffer_.empty()) return;
  const bool written = std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size() &&
                       std::fflush(file_) == 0;
  buffer_.clear();
  if (written) return;
  fmt::print(stderr, "deepinfer: the record ends here: {}: {}\n", path_, std::strerror(errno));
  std::fclose(file_);
  file_ = nullptr;
}

}  // namespace di::engine
