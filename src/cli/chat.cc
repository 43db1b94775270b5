// `deepinfer chat`: a conversation on the terminal.
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/prompt_options.h"
#include "cli/terminal.h"

namespace di::cli {
namespace {

struct ChatOptions {
  PromptOptions answer;
  RuntimeOptions runtime;
};

/// The conversation so far, and the session that has read it.
class Chat {
 public:
  Chat(const ChatOptions& options, Runtime& runtime) : options_(options), runtime_(runtime) {
    reset();
  }

  void reset() {
    conversation_ = {};
    set_thinking(conversation_, options_.answer.thinking);
    if (!options_.answer.system.empty()) {
      conversation_.messages.push_back(text_message(text::Role::kSystem, options_.answer.system));
    }
    session_.reset();
  }

  void ask(const std::string& question) {
    conversation_.messages.push_back(text_message(text::Role::kUser, question));
    const text::RenderedPrompt rendered =
        text::render(conversation_, text::chat_version_from(options_.answer.format));
    const std::vector<int32_t> ids = text::encode(rendered, runtime_.tokenizer());
    AnswerPrinter printer;
    const GenerationResult result = generate(
        runtime_,
        session_for(ids),
        std::span(ids).subspan(known_),
        generation_options(options_.answer, conversation_, runtime_.folder()),
        [&](const text::OutputEvent& event) { printer.print(event); }
    );
    printer.finish();
    fmt::print(stderr, "[{}]\n", summary_line(result));
    using Kind = text::OutputEvent::Kind;
    text::Message answer = text_message(text::Role::kAssistant, result.text_of(Kind::kContent));
    answer.reasoning = result.text_of(Kind::kReasoning);
    conversation_.messages.push_back(std::move(answer));
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

  const ChatOptions& options_;
  Runtime& runtime_;
  text::Conversation conversation_;
  std::unique_ptr<model::Session> session_;
  std::size_t known_ = 0;
};

void run(const ChatOptions& options) {
  Runtime runtime(options.runtime);
  Chat chat(options, runtime);
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
  add_prompt_options(*command, options->answer);
  add_runtime_options(*command, options->runtime);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
