#include "outputs.h"

#include <algorithm>

namespace di::python {

void TokenColumns::append(const engine::TokenOutput& token) {
  ids.push_back(token.token);
  logprobs.push_back(token.logprob);
  for (const sampling::TokenLogprob& top : token.top) {
    top_ids.push_back(top.token);
    top_logprobs.push_back(top.logprob);
  }
  top_ends.push_back(std::ssize(top_ids));
}

void TokenColumns::append(const TokenColumns& other) {
  const int64_t first = std::ssize(top_ids);
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
  logprobs.insert(logprobs.end(), other.logprobs.begin(), other.logprobs.end());
  top_ids.insert(top_ids.end(), other.top_ids.begin(), other.top_ids.end());
  top_logprobs.insert(top_logprobs.end(), other.top_logprobs.begin(), other.top_logprobs.end());
  for (const int64_t end : other.top_ends)
    top_ends.push_back(first + end);
}

void CompletionOutput::append(const engine::ChoiceOutput& news) {
  text += news.text;
  for (const engine::TokenOutput& token : news.tokens)
    tokens.append(token);
  if (news.finish_reason) finish_reason = engine::name_of(*news.finish_reason);
  if (!news.message.empty()) message = news.message;
}

void CompletionOutput::append(const CompletionOutput& later) {
  text += later.text;
  tokens.append(later.tokens);
  if (!later.finish_reason.empty()) finish_reason = later.finish_reason;
  if (!later.message.empty()) message = later.message;
}

CompletionOutput& RequestOutput::choice(int64_t index) {
  const auto at = std::lower_bound(
      outputs.begin(),
      outputs.end(),
      index,
      [](const std::shared_ptr<CompletionOutput>& output, int64_t wanted) {
        return output->index < wanted;
      }
  );
  if (at != outputs.end() && (*at)->index == index) return **at;
  const CompletionOutput first{.index = index, .asked_for = asked_for};
  return **outputs.insert(at, std::make_shared<CompletionOutput>(first));
}

RequestOutput RequestOutput::without_news() const {
  RequestOutput output;
  output.request_id = request_id;
  output.num_prompt_tokens = num_prompt_tokens;
  output.asked_for = asked_for;
  return output;
}

void RequestOutput::append(const engine::Output& news) {
  for (const engine::ChoiceOutput& output : news.choices)
    choice(output.index).append(output);
  for (const engine::TokenOutput& token : news.prompt_logprobs)
    prompt.append(token);
  finished = finished || news.finished;
}

void RequestOutput::append(const RequestOutput& later) {
  for (const auto& output : later.outputs)
    choice(output->index).append(*output);
  prompt.append(later.prompt);
  finished = finished || later.finished;
}

RequestOutput empty_output(const engine::Request& request) {
  RequestOutput output;
  output.request_id = request.id;
  output.num_prompt_tokens = std::ssize(request.prompt_token_ids);
  output.asked_for = {
      .logprobs = request.sampling.logprobs || request.sampling.top_logprobs > 0,
      .top_logprobs = request.sampling.top_logprobs > 0,
      .prompt_logprobs = request.sampling.prompt_logprobs};
  return output;
}

}  // namespace di::python
