// `deepinfer chat`: a conversation on the terminal.
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/generation.h"
#include "cli/prompt_options.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"

namespace di::cli {
namespace {

struct ChatOptions {
  PromptOptions prompt;
  SamplingFlags sampling;
  EngineFlags engine;
};

/// The conversation so far, and the session that has read it.
class Chat {
 public:
  Chat(const PromptOptions& options, const sampling::SamplingParams& sampling, Runtime& runtime)
      : options_(options), sampling_(sampling), runtime_(runtime) {
    reset();
  }

  void reset() {
    conversation_ = start_conversation(options_);
    session_.reset();
  }

  void ask(const std::string& question) {
    conversation_.messages.push_back(text_message(text::Role::kUser, question));
    const EncodedPrompt prompt =
        encode_conversation(conversation_, options_.format, sampling_.stop, runtime_.tokenizer());
    AnswerPrinter printer;
    AnswerReader reader(prompt.answer, [&](const text::OutputEvent& event) {
      printer.print(event);
    });
    model::Session& session = session_for(prompt.ids);
    const std::span<const int32_t> news = std::span(prompt.ids).subspan(known_);
    AnswerTimes times;
    const Answer answer = generate(runtime_, session, news, sampling_, reader, times);
    printer.finish();
    fmt::print(stderr, "[{}]\n", summary_line(std::ssize(answer.tokens), answer.reason, times));
    using Kind = text::OutputEvent::Kind;
    text::Message message = text_message(text::Role::kAssistant, answer.text_of(Kind::kContent));
    message.reasoning = answer.text_of(Kind::kReasoning);
    conversation_.messages.push_back(std::move(message));
  }

  /// Forgets a question that could not be answered.
  void drop_question() {
    if (!conversation_.messages.empty() &&
        conversation_.messages.back().role == text::Role::kUser) {
      conversation_.messages.pop_back();
    }
  }

 private:
  /// The session goes on when what it has read begins `ids`; otherwise (an answer reads differently
  /// when it is encoded again) a new one reads all of them.
  model::Session& session_for(const std::vector<int32_t>& ids) {
    const bool extends =
        session_ != nullptr && session_->tokens().size() < ids.size() &&
        std::equal(session_->tokens().begin(), session_->tokens().end(), ids.begin());
    if (!extends) {
      session_.reset();  // gives its blocks back before the next one takes them
      session_ = runtime_.new_session(std::ssize(ids));
    }
    known_ = session_->tokens().size();
    return *session_;
  }

  const PromptOptions& options_;
  const sampling::SamplingParams& sampling_;
  Runtime& runtime_;
  text::Conversation conversation_;
  std::unique_ptr<model::Session> session_;
  std::size_t known_ = 0;
};

void run(const ChatOptions& options) {
  const engine::EngineOptions engine_options = options.engine.options();
  Runtime runtime(engine_options);
  sampling::SamplingParams sampling = options.sampling.params(runtime.folder());
  sampling.seed = engine_options.seed;
  Chat chat(options.prompt, sampling, runtime);
  const bool interactive = isatty(STDIN_FILENO) != 0;
  if (interactive) fmt::print("Type a message; /reset starts over, /exit or Ctrl-D ends.\n");
  std::string line;
  while (true) {
    if (interactive) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/reset") {
      chat.reset();
      continue;
    }
    try {
      chat.ask(line);
    } catch (const Error& error) {
      chat.drop_question();
      fmt::print(stderr, "deepinfer: {}\n", error.what());
    }
  }
}

}  // namespace

void add_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Talk with the model on the terminal");
  add_prompt_options(*command, options->prompt);
  options->sampling.add(*command, /*all=*/false);
  std::vector<std::string> engine_options = kLoneOptions;
  engine_options.push_back("seed");
  options->engine.add(*command, engine_options);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
