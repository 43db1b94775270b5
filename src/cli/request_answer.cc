#include "cli/request_answer.h"

#include <iterator>
#include <utility>

namespace di::cli {

RequestAnswer::RequestAnswer(
    const AnswerOptions& options, int64_t num_choices, const OnEvent& on_event
)
    : choices_(static_cast<std::size_t>(num_choices)), num_open_(choices_.size()) {
  for (std::size_t i = 0; i < choices_.size(); ++i)
    readers_.emplace_back(options, i == 0 ? on_event : OnEvent());
}

void RequestAnswer::take(engine::Output output) {
  finished_ = output.finished;
  std::move(
      output.prompt_logprobs.begin(),
      output.prompt_logprobs.end(),
      std::back_inserter(prompt_logprobs_)
  );
  for (engine::ChoiceOutput& news : output.choices)
    take(news);
}

void RequestAnswer::take(engine::ChoiceOutput& news) {
  using engine::FinishReason;
  const auto index = static_cast<std::size_t>(news.index);
  Answer& answer = choices_[index];
  AnswerReader& reader = readers_[index];
  if (!answer.reason.empty()) return;  // it was read to its end before the engine knew
  const bool by_token =
      news.finish_reason == FinishReason::kEos || news.finish_reason == FinishReason::kStopToken;
  if (by_token && !news.tokens.empty()) news.tokens.pop_back();
  std::move(news.tokens.begin(), news.tokens.end(), std::back_inserter(answer.tokens));
  reader.push(news.text);
  if (reader.done()) {
    end(index, reader.reason(), "");
  } else if (news.finish_reason) {
    end(index, engine::name_of(*news.finish_reason), news.message);
  }
}

void RequestAnswer::end(std::size_t index, const char* reason, const std::string& message) {
  readers_[index].finish();
  choices_[index].events = readers_[index].events();
  choices_[index].reason = reason;
  choices_[index].message = message;
  --num_open_;
}

int64_t RequestAnswer::num_tokens() const {
  int64_t count = 0;
  for (const Answer& answer : choices_)
    count += std::ssize(answer.tokens);
  return count;
}

}  // namespace di::cli
