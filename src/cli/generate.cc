// `deepinfer generate`: one prompt, one answer.
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/prompt_options.h"
#include "cli/terminal.h"

namespace di::cli {
namespace {

struct GenerateOptions {
  std::string prompt;
  std::string file;
  std::string conversation;  ///< file of a conversation in the neutral form
  bool raw = false;
  bool json = false;
  PromptOptions answer;
  RuntimeOptions runtime;
};

/// The prompt's ids and how to read what follows them.
struct Prompt {
  std::vector<int32_t> ids;
  GenerationOptions options;
};

std::string prompt_text(const GenerateOptions& options) {
  const bool from_stdin = options.prompt.empty() || options.prompt == "-";
  const std::string text = !options.file.empty() ? read_text_file(options.file)
                           : from_stdin          ? read_standard_input()
                                                 : options.prompt;
  if (text.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the prompt is empty; give one as an argument, with --file, or on standard input"
    );
  }
  return text;
}

text::Conversation conversation_of(const GenerateOptions& options) {
  if (!options.conversation.empty()) {
    return text::Conversation::from_json(
        Json::parse(read_text_file(options.conversation), options.conversation)
    );
  }
  text::Conversation conversation;
  set_thinking(conversation, options.answer.thinking);
  if (!options.answer.system.empty()) {
    conversation.messages.push_back(text_message(text::Role::kSystem, options.answer.system));
  }
  conversation.messages.push_back(text_message(text::Role::kUser, prompt_text(options)));
  return conversation;
}

Prompt encode_prompt(const GenerateOptions& options, const Runtime& runtime) {
  if (options.raw) {
    GenerationOptions generation;
    generation.sampling = sampling_params(options.answer, runtime.folder());
    generation.parse = !options.answer.stop.empty();
    generation.parser.start = text::OutputStart::kAnswerContinued;
    generation.parser.stop_strings = options.answer.stop;
    return {
        runtime.tokenizer().encode(prompt_text(options), text::AddedTokens::kRecognised),
        generation};
  }
  const text::Conversation conversation = conversation_of(options);
  const text::RenderedPrompt rendered =
      text::render(conversation, text::chat_version_from(options.answer.format));
  return {
      text::encode(rendered, runtime.tokenizer()),
      generation_options(options.answer, conversation, runtime.folder())};
}

Json result_json(const GenerationResult& result) {
  using Kind = text::OutputEvent::Kind;
  Json::Array calls;
  for (const text::OutputEvent& event : result.events) {
    if (event.kind == Kind::kToolCall) {
      calls.push_back(Json(Json::Object{{"name", Json(event.text)}, {"arguments", Json("")}}));
    } else if (event.kind == Kind::kArguments) {
      Json& arguments = calls.back().as_object()[1].second;
      arguments = Json(arguments.as_string() + event.text);
    }
  }
  Json::Array ids;
  for (const int32_t id : result.ids)
    ids.emplace_back(id);
  return Json::Object{
      {"text", Json(result.text_of(Kind::kContent))},
      {"reasoning", Json(result.text_of(Kind::kReasoning))},
      {"tool_calls", Json(std::move(calls))},
      {"ids", Json(std::move(ids))},
      {"stop_reason", Json(name_of(result.reason))},
      {"prompt_tokens", Json(result.prompt_tokens)},
      {"completion_tokens", Json(std::ssize(result.ids))},
      {"prefill_seconds", Json(result.prefill_seconds)},
      {"tokens_per_second", Json(result.tokens_per_second())}};
}

void run(const GenerateOptions& options) {
  Runtime runtime(options.runtime);
  const Prompt prompt = encode_prompt(options, runtime);
  const auto session = runtime.new_session(std::ssize(prompt.ids));
  if (options.json) {
    const GenerationResult result =
        generate(runtime, *session, prompt.ids, prompt.options, [](const text::OutputEvent&) {});
    fmt::print("{}\n", result_json(result).dump());
    return;
  }
  AnswerPrinter printer;
  const GenerationResult result =
      generate(runtime, *session, prompt.ids, prompt.options, [&](const text::OutputEvent& event) {
        printer.print(event);
      });
  printer.finish();
  fmt::print(stderr, "[{}; {} {}]\n", summary_line(result), runtime.ops().name, runtime.ops().isa);
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Answer one prompt");
  auto* prompt = command->add_option(
      "prompt", options->prompt, "The prompt; without it, or as -, read from standard input"
  );
  auto* file = command->add_option("-f,--file", options->file, "Read the prompt from a file")
                   ->excludes(prompt);
  auto* conversation = command
                           ->add_option(
                               "--conversation",
                               options->conversation,
                               "A conversation as JSON (the format of `render`) instead of a prompt"
                           )
                           ->excludes(prompt)
                           ->excludes(file);
  command
      ->add_flag(
          "--raw",
          options->raw,
          "Take the prompt as it is, special tokens included, without the chat format"
      )
      ->excludes(conversation);
  command->add_flag(
      "--json", options->json, "Print one JSON object at the end instead of streaming text"
  );
  add_prompt_options(*command, options->answer);
  add_runtime_options(*command, options->runtime);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
