#include "engine/choice.h"

#include <algorithm>
#include <utility>

namespace di::engine {

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos: return "eos";
    case FinishReason::kStopToken: return "stop_token";
    case FinishReason::kStopString: return "stop_string";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kAborted: return "abort";
    case FinishReason::kTimeout: return "timeout";
    case FinishReason::kFailed: return "failed";
    case FinishReason::kRefused: return "refused";
  }
  return "unknown";
}

Choice::Choice(const ChoiceSpec& spec) : spec_(spec), stop_strings_(spec.sampling->stop) {
  if (spec.tokenizer != nullptr) detokenizer_.emplace(*spec.tokenizer);
}

int64_t Choice::max_tokens() const {
  return std::min(spec_.sampling->max_tokens, spec_.context - spec_.num_prompt_tokens);
}

std::optional<FinishReason> Choice::limit_reached() const {
  const int64_t count = std::ssize(outputs_);
  if (count >= spec_.sampling->max_tokens) return FinishReason::kLength;
  if (spec_.num_prompt_tokens + count >= spec_.context) return FinishReason::kContext;
  return std::nullopt;
}

void Choice::take(SequenceResult& result, ChoiceOutput& news) {
  news.index = spec_.index;
  for (std::size_t i = 0; i < result.draws.size() && !ended(); ++i) {
    const bool is_last = i + 1 == result.draws.size();
    add(result.draws[i], is_last ? result.end : DrawEnd::kGoesOn, news);
  }
  if (ended() || result.end != DrawEnd::kNotFinite) return;
  end(FinishReason::kFailed,
      "the model's numbers are not finite, or nothing is left to draw; this request cannot go on",
      news);
}

void Choice::add(sampling::Draw& draw, DrawEnd end_of_draw, ChoiceOutput& news) {
  outputs_.push_back(draw.token);
  TokenOutput& output = news.tokens.emplace_back();
  output.token = draw.token;
  output.logprob = draw.logprob;
  output.top = std::move(draw.top);
  news.num_output_tokens = std::ssize(outputs_);
  if (end_of_draw == DrawEnd::kEos || end_of_draw == DrawEnd::kStopToken) {
    end(end_of_draw == DrawEnd::kEos ? FinishReason::kEos : FinishReason::kStopToken, "", news);
    return;
  }
  add_text(draw.token, news);
  if (ended()) return;
  if (const auto reason = limit_reached()) end(*reason, "", news);
}

void Choice::add_text(int32_t token, ChoiceOutput& news) {
  if (!detokenizer_) return;
  const std::string piece = detokenizer_->push(token);
  if (spec_.sampling->stop.empty() || std::ssize(outputs_) < spec_.sampling->min_tokens) {
    news.text += piece;
    return;
  }
  news.text += stop_strings_.push(piece);
  if (stop_strings_.matched()) end(FinishReason::kStopString, *stop_strings_.matched(), news);
}

void Choice::end(FinishReason reason, const std::string& message, ChoiceOutput& news) {
  finish_reason_ = reason;
  news.index = spec_.index;
  news.num_output_tokens = std::ssize(outputs_);
  news.finish_reason = reason;
  news.message = message;
  if (!detokenizer_ || reason == FinishReason::kStopString) return;
  news.text += stop_strings_.push(detokenizer_->flush());
  if (!stop_strings_.matched()) news.text += stop_strings_.flush();
}

}  // namespace di::engine
