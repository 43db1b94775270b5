// `deepinfer batch`: many requests at once, one a line, answers in the same order.
#include <cstdio>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/batch_file.h"
#include "cli/commands.h"
#include "cli/engine_run.h"
#include "cli/interrupt.h"
#include "cli/request_answer.h"
#include "cli/sampling_flags.h"

namespace di::cli {
namespace {

constexpr int kExitSomeFailed = 1;

struct BatchOptions {
  std::string file;
  std::string format = "v4.1";
  SamplingFlags sampling;
  EngineRunFlags run;
};

/// Reads lines as the engine takes them, and prints results as their turn comes.
class Batch {
 public:
  Batch(const BatchOptions& options, EngineRun& run)
      : file_(options.file),
        run_(run),
        engine_(run.engine()),
        defaults_{options.sampling.json(run.engine().model_folder()), options.format},
        // Enough that finished sequences are replaced at once, few enough to be held in memory.
        max_live_(static_cast<std::size_t>(4 * run.engine().options().max_num_seqs)) {}

  /// Runs everything, or what came before Ctrl-C. Returns whether all requests were answered.
  bool run() {
    bool aborted = false;
    while (true) {
      if (!aborted) add_requests();
      if (interrupted() && !aborted) {
        aborted = true;
        at_end_ = true;
        for (const auto& [index, live] : live_)
          engine_.abort(std::to_string(index));
      }
      if (!engine_.has_work() && at_end_) break;
      for (engine::Output& output : run_.step())
        take(std::move(output));
    }
    return all_answered_;
  }

 private:
  struct Live {
    Json id;
    RequestAnswer answer;
    sampling::SamplingParams reports;
  };

  void add_requests() {
    while (!at_end_ && live_.size() < max_live_) {
      if (!waiting_ && !read_next()) return;
      engine::Request request = waiting_->request;
      if (const auto refusal = engine_.add(request)) {
        if (refusal->code == ErrorCode::kBusy && engine_.has_work()) return;
        fail(waiting_->id, refusal->code, refusal->message);
      } else {
        const sampling::SamplingParams& sampling = request.sampling;
        live_.emplace(
            next_index_++,
            Live{waiting_->id, RequestAnswer(waiting_->answer, sampling.n, {}), sampling}
        );
      }
      waiting_.reset();
    }
  }

  /// Reads lines up to one that can be tried.
  bool read_next() {
    while (const auto text = file_.next()) {
      Json id;
      try {
        const std::string where = fmt::format("line {}", file_.line());
        const Json json = Json::parse(*text, where, {.reject_duplicate_keys = true});
        if (const Json* found = json.find("id")) id = *found;
        waiting_ = parse_batch_line(json, defaults_, engine_.tokenizer());
        waiting_->request.id = std::to_string(next_index_);
        return true;
      } catch (const Error& error) {
        fail(id, error.code(), error.what());
      }
    }
    at_end_ = true;
    return false;
  }

  void take(engine::Output output) {
    const int64_t index = std::stoll(output.request_id);
    Live& live = live_.at(index);
    live.answer.take(std::move(output));
    if (live.answer.complete() && !live.answer.finished()) engine_.abort(std::to_string(index));
    if (!live.answer.finished()) return;
    finish(index, result(live));
    live_.erase(index);
  }

  Json result(const Live& live) {
    const text::Tokenizer& tokenizer = engine_.tokenizer();
    Json::Array choices;
    for (const Answer& choice : live.answer.choices()) {
      Json json = answer_json(choice);
      if (live.reports.logprobs || live.reports.top_logprobs > 0) {
        json.set("logprobs", logprobs_json(choice.tokens, tokenizer));
      }
      if (!choice.message.empty()) json.set("message", choice.message);
      const bool failed = choice.reason == engine::name_of(engine::FinishReason::kFailed);
      all_answered_ = all_answered_ && !failed;
      choices.push_back(std::move(json));
    }
    Json json = Json::Object{{"choices", std::move(choices)}};
    if (live.reports.prompt_logprobs) {
      json.set("prompt_logprobs", logprobs_json(live.answer.prompt_logprobs(), tokenizer));
    }
    return with_names(live.id, json);
  }

  void fail(const Json& id, ErrorCode code, const std::string& message) {
    all_answered_ = false;
    const Json error = Json::Object{{"code", name_of(code)}, {"message", message}};
    finish(next_index_++, with_names(id, Json::Object{{"error", error}}));
  }

  /// `result` with the line's own name before its members.
  static Json with_names(const Json& id, const Json& result) {
    Json json = Json::Object{};
    if (!id.is_null()) json.set("id", id);
    for (const auto& [key, value] : result.as_object())
      json.set(key, value);
    return json;
  }

  void finish(int64_t index, const Json& result) {
    results_[index] = result.dump();
    while (!results_.empty() && results_.begin()->first == next_print_) {
      fmt::print("{}\n", results_.begin()->second);
      std::fflush(stdout);
      results_.erase(results_.begin());
      ++next_print_;
    }
  }

  BatchFile file_;
  EngineRun& run_;
  engine::Engine& engine_;
  const BatchDefaults defaults_;
  const std::size_t max_live_;
  std::optional<BatchLine> waiting_;  // read, and not yet taken by the engine
  int64_t next_index_ = 0;
  int64_t next_print_ = 0;
  std::map<int64_t, Live> live_;
  std::map<int64_t, std::string> results_;  // whose turn has not come
  bool at_end_ = false;
  bool all_answered_ = true;
};

void run(const BatchOptions& options) {
  EngineRun run(options.run, options.run.engine.options());
  const bool all_answered = Batch(options, run).run();
  if (interrupted()) throw ExitCode{kExitInterrupted};
  if (!all_answered) throw ExitCode{kExitSomeFailed};
}

}  // namespace

void add_batch(CLI::App& app) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* command =
      app.add_subcommand("batch", "Answer many requests at once: JSON lines in, JSON lines out");
  command
      ->add_option("file", options->file, "One request a line (docs/batch.md); -: standard input")
      ->required()
      ->type_name("FILE");
  command->add_option("--format", options->format, "Chat format of conversations: v4.1 or v4")
      ->check(CLI::IsMember({"v4.1", "v4"}))
      ->capture_default_str();
  options->sampling.add(*command, /*all=*/true);
  options->run.add(*command, all_options());
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
