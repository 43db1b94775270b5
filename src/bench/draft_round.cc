#include "bench/draft_round.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/clock.h"
#include "text/chat_encoding.h"

namespace di::bench {
namespace {

/// Of all threads of the process.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::vector<int32_t> prompt_of(const engine::Engine& engine, const char* content) {
  text::Conversation conversation;
  conversation.thinking = false;
  text::Message& message = conversation.messages.emplace_back();
  message.role = text::Role::kUser;
  message.content = content;
  return text::encode(text::render(conversation, text::ChatVersion::kV41), engine.tokenizer());
}

class Run {
 public:
  Run(engine::Engine& engine,
      const DraftsBenchOptions& options,
      const DraftPrompts& prompts,
      int64_t sequences)
      : engine_(engine), options_(options), prompts_(prompts), sequences_(sequences) {}

  DraftRound answer() {
    const int64_t count = std::ssize(prompts_.prompts) * (sequences_ == 1 ? 1 : 2 * sequences_);
    engine_.restart_stats();
    int64_t added = 0;
    while (added < count || engine_.has_work()) {
      while (running_ < sequences_ && added < count)
        add(added++);
      const bool full = num_begun_ == sequences_ && running_ == sequences_;
      const double start = engine::steady_seconds();
      const double cpu_start = cpu_seconds();
      const int64_t tokens = take(engine_.step());
      if (!full) continue;
      seconds_ += engine::steady_seconds() - start;
      cpu_seconds_ += cpu_seconds() - cpu_start;
      tokens_ += tokens;
    }
    round_.keys_per_row = static_cast<double>(keys_) / static_cast<double>(round_.output_tokens);
    round_.stats = engine_.stats();
    round_.tokens_per_s = static_cast<double>(tokens_) / seconds_;
    round_.cpu_s_per_token = cpu_seconds_ / static_cast<double>(tokens_);
    return std::move(round_);
  }

 private:
  void add(int64_t number) {
    const auto at = static_cast<std::size_t>(number) % prompts_.prompts.size();
    engine::Request request;
    request.id = fmt::format("{} {}", prompts_.kind, number);
    request.prompt_token_ids = prompt_of(engine_, prompts_.prompts[at]);
    prompt_tokens_[request.id] = std::ssize(request.prompt_token_ids);
    request.sampling.temperature = options_.temperature;
    request.sampling.seed = static_cast<uint64_t>(number);
    request.sampling.max_tokens = options_.max_tokens;
    request.detokenize = false;
    if (const auto refusal = engine_.add(std::move(request)))
      throw Error(ErrorCode::kInvalidArgument, refusal->message);
    ++running_;
  }

  /// Tokens of one step's news.
  int64_t take(std::vector<engine::Output> outputs) {
    int64_t count = 0;
    for (const engine::Output& output : outputs) {
      std::vector<int32_t>& text = round_.texts[output.request_id];
      for (const engine::ChoiceOutput& choice : output.choices) {
        if (text.empty() && !choice.tokens.empty()) ++num_begun_;
        for (const engine::TokenOutput& token : choice.tokens) {
          keys_ += prompt_tokens_.at(output.request_id) + std::ssize(text);
          text.push_back(token.token);
        }
        count += std::ssize(choice.tokens);
      }
      if (!output.finished) continue;
      --running_;
      --num_begun_;
    }
    round_.output_tokens += count;
    return count;
  }

  engine::Engine& engine_;
  const DraftsBenchOptions& options_;
  const DraftPrompts& prompts_;
  int64_t sequences_;
  DraftRound round_;
  int64_t running_ = 0;
  int64_t num_begun_ = 0;  // of these, with a first token
  double seconds_ = 0;     // while all had theirs
  double cpu_seconds_ = 0;
  int64_t tokens_ = 0;  // that came meanwhile
  int64_t keys_ = 0;    // that the rows saw which drew the tokens
  std::map<std::string, int64_t> prompt_tokens_;
};

}  // namespace

DraftRound answer_prompts(
    engine::Engine& engine,
    const DraftsBenchOptions& options,
    const DraftPrompts& prompts,
    int64_t sequences
) {
  return Run(engine, options, prompts, sequences).answer();
}

}  // namespace di::bench
