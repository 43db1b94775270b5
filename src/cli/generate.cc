// `deepinfer generate`: one prompt, one answer, or several of them.
#include <chrono>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/engine_run.h"
#include "cli/interrupt.h"
#include "cli/prompt_options.h"
#include "cli/request_answer.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"

namespace di::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct GenerateOptions {
  std::string prompt;
  std::string file;
  std::string conversation;  ///< file of a conversation in the neutral form
  bool raw = false;
  bool json = false;
  PromptOptions chat;
  SamplingFlags sampling;
  EngineRunFlags run;
};

std::string prompt_text(const GenerateOptions& options) {
  const bool from_stdin = options.prompt.empty() || options.prompt == "-";
  std::string text = !options.file.empty() ? read_text_file(options.file)
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
  text::Conversation conversation = start_conversation(options.chat);
  conversation.messages.push_back(text_message(text::Role::kUser, prompt_text(options)));
  return conversation;
}

/// The prompt, and in `sampling` the stop strings that are left to the engine: in the chat format
/// they end answers alone, which the reader of the answer knows about.
EncodedPrompt encode_prompt(
    const GenerateOptions& options,
    const text::Tokenizer& tokenizer,
    sampling::SamplingParams& sampling
) {
  if (options.raw) return encode_raw(prompt_text(options), tokenizer);
  if (sampling.min_tokens > 0 && !sampling.stop.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--stop in the chat format does not know --min-tokens; use one of them, or --raw"
    );
  }
  const std::vector<std::string> stop = std::exchange(sampling.stop, {});
  return encode_conversation(conversation_of(options), options.chat.format, stop, tokenizer);
}

/// Runs the request to its end or until Ctrl-C.
AnswerTimes run_request(EngineRun& run, engine::Request request, RequestAnswer& answer) {
  AnswerTimes times{.prompt_tokens = std::ssize(request.prompt_token_ids)};
  const std::string id = request.id;
  const Clock::time_point start = Clock::now();
  Clock::time_point first_token = start;
  if (auto refusal = run.engine().add(std::move(request))) {
    throw Error(refusal->code, refusal->message);
  }
  while (!answer.finished()) {
    for (engine::Output& output : run.step()) {
      answer.take(std::move(output));
      if (first_token == start && answer.num_tokens() > 0) first_token = Clock::now();
    }
    if (interrupted() || answer.complete()) run.engine().abort(id);
  }
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  times.prefill_seconds = seconds((first_token == start ? Clock::now() : first_token) - start);
  times.decode_seconds = seconds(Clock::now() - start) - times.prefill_seconds;
  return times;
}

Json choice_json(const Answer& choice, bool logprobs, const text::Tokenizer& tokenizer) {
  Json json = answer_json(choice);
  if (logprobs) json.set("logprobs", logprobs_json(choice.tokens, tokenizer));
  return json;
}

/// The only answer's members, or an array of answers, then what concerns the prompt.
Json result_json(
    const RequestAnswer& answer,
    const sampling::SamplingParams& sampling,
    const AnswerTimes& times,
    const text::Tokenizer& tokenizer
) {
  const bool logprobs = sampling.logprobs || sampling.top_logprobs > 0;
  Json json = Json::Object{};
  if (sampling.n == 1) {
    json = choice_json(answer.choices()[0], logprobs, tokenizer);
  } else {
    Json::Array choices;
    for (const Answer& choice : answer.choices())
      choices.push_back(choice_json(choice, logprobs, tokenizer));
    json.set("choices", std::move(choices));
  }
  if (sampling.prompt_logprobs) {
    json.set("prompt_logprobs", logprobs_json(answer.prompt_logprobs(), tokenizer));
  }
  json.set("prompt_tokens", times.prompt_tokens);
  json.set("prefill_seconds", times.prefill_seconds);
  json.set("tokens_per_second", times.tokens_per_second(answer.num_tokens()));
  return json;
}

/// Choices after the first, which has been streamed.
void print_further_choices(const RequestAnswer& answer) {
  for (std::size_t i = 1; i < answer.choices().size(); ++i) {
    fmt::print("\n--- {} ---\n", i + 1);
    AnswerPrinter printer;
    for (const text::OutputEvent& event : answer.choices()[i].events)
      printer.print(event);
    printer.finish();
  }
}

void check_reports(const sampling::SamplingParams& sampling) {
  const bool any = sampling.logprobs || sampling.top_logprobs > 0 || sampling.prompt_logprobs;
  if (any) throw Error(ErrorCode::kInvalidArgument, "logprobs are reported with --json alone");
}

void fail_if_failed(const RequestAnswer& answer) {
  for (const Answer& choice : answer.choices()) {
    if (choice.reason == engine::name_of(engine::FinishReason::kFailed)) {
      throw Error(ErrorCode::kInvalidArgument, choice.message);
    }
  }
}

/// Memory is planned for the choices alone, unless more was asked for.
engine::EngineOptions engine_options(const GenerateOptions& options) {
  const int64_t choices = options.sampling.params("").n;
  return options.run.engine.merge({.max_num_seqs = std::clamp<int64_t>(choices, 1, 512)}).options;
}

void run(const GenerateOptions& options) {
  EngineRun run(options.run, engine_options(options));
  engine::Engine& engine = run.engine();
  engine::Request request{.id = "generate"};
  sampling::SamplingParams& sampling = request.sampling;
  sampling = options.sampling.params(engine.model_folder());
  sampling.seed = engine.options().seed;
  if (!options.json) check_reports(sampling);
  EncodedPrompt prompt = encode_prompt(options, engine.tokenizer(), sampling);
  request.prompt_token_ids = std::move(prompt.ids);

  AnswerPrinter printer;
  OnEvent print;
  if (!options.json) print = [&](const text::OutputEvent& event) { printer.print(event); };
  const sampling::SamplingParams reports = sampling;
  RequestAnswer answer(prompt.answer, sampling.n, print);
  const AnswerTimes times = run_request(run, std::move(request), answer);
  if (options.json) {
    fmt::print("{}\n", result_json(answer, reports, times, engine.tokenizer()).dump());
  } else {
    printer.finish();
    print_further_choices(answer);
    const std::string summary =
        summary_line(answer.num_tokens(), answer.choices()[0].reason, times);
    fmt::print(stderr, "[{}; {} {}]\n", summary, engine.ops().name, engine.ops().isa);
  }
  fail_if_failed(answer);
  if (interrupted()) throw ExitCode{kExitInterrupted};
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
  add_prompt_options(*command, options->chat);
  options->sampling.add(*command, /*all=*/true);
  options->run.add(*command, kOneRequestOptions);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
