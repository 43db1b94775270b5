// RequestAnswer: puts one request's news together, choice by choice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cli/answer.h"
#include "engine/request.h"

namespace di::cli {

/// Thread: one at a time.
class RequestAnswer {
 public:
  /// For a request with `num_choices` choices. `on_event` hears choice 0; it may be empty.
  RequestAnswer(const AnswerOptions& options, int64_t num_choices, const OnEvent& on_event);

  /// Takes the next news of the request.
  void take(engine::Output output);

  /// Every choice has ended, or said all that will be read of it: what still runs may be aborted.
  bool complete() const { return num_open_ == 0; }
  /// The request's last news came.
  bool finished() const { return finished_; }

  const std::vector<Answer>& choices() const { return choices_; }
  const std::vector<engine::TokenOutput>& prompt_logprobs() const { return prompt_logprobs_; }
  /// Tokens of all choices.
  int64_t num_tokens() const;

 private:
  void take(engine::ChoiceOutput& news);
  void end(std::size_t index, const char* reason, const std::string& message);

  std::vector<AnswerReader> readers_;
  std::vector<Answer> choices_;
  std::vector<engine::TokenOutput> prompt_logprobs_;
  std::size_t num_open_;
  bool finished_ = false;
};

}  // namespace di::cli
