// `deepinfer calibrate`: fits the temperatures of the drafter's confidences to what becomes of its
// drafts, and keeps them beside the model.
#include <algorithm>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/write_file.h"
#include "cache/layout.h"
#include "cli/batch_file.h"
#include "cli/calibration_report.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "engine/calibration_file.h"
#include "engine/draft_trial.h"
#include "engine/options.h"
#include "engine/record.h"

namespace di::cli {
namespace {

namespace fs = std::filesystem;

/// Tokens at the head of a window that are read before the first draft, as an answer has a prompt.
constexpr std::size_t kLeadTokens = 32;

struct CalibrateOptions {
  std::string text;
  std::string prompts;
  std::string format = "v4.1";
  int64_t window = 512;
  int64_t max_tokens = 256;
  double temperature = 0;
  bool all = false;
  std::string output;
  std::string plot;
  bool json = false;
  EngineFlags engine;
};

/// A window of a text, behind a BOS.
engine::DraftCourse window_course(std::span<const int32_t> window, int32_t bos) {
  engine::DraftCourse course;
  const std::size_t lead = std::min(kLeadTokens, window.size() / 2);
  course.prompt = {bos};
  course.prompt.insert(course.prompt.end(), window.begin(), window.begin() + lead);
  course.text.assign(window.begin() + lead, window.end());
  return course;
}

/// The text in windows of about equal length.
std::vector<engine::DraftCourse> courses_of_text(
    const CalibrateOptions& options, const Runtime& runtime, int64_t length
) {
  const std::vector<int32_t> ids =
      runtime.tokenizer().encode(read_text_file(options.text), text::AddedTokens::kPlain);
  const int64_t most = std::min(options.window, runtime.context() - length - 2);
  if (most < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a context of {} has no room for {} drafts", runtime.context(), length)
    );
  }
  const std::size_t count = (ids.size() + most - 1) / static_cast<std::size_t>(most);
  const auto bos = static_cast<int32_t>(runtime.config().tokens.bos_token_id);
  std::vector<engine::DraftCourse> courses;
  for (std::size_t w = 0; w < count; ++w) {
    const std::size_t begin = w * ids.size() / count;
    const std::size_t end = (w + 1) * ids.size() / count;
    courses.push_back(window_course(std::span(ids).subspan(begin, end - begin), bos));
    courses.back().sampling.temperature = options.temperature;
  }
  return courses;
}

/// The prompts of a batch file, each to be answered by the model.
std::vector<engine::DraftCourse> courses_of_prompts(
    const CalibrateOptions& options, const Runtime& runtime
) {
  const Json sampling =
      Json::Object{{"temperature", options.temperature}, {"max_tokens", options.max_tokens}};
  BatchFile file(options.prompts);
  std::vector<engine::DraftCourse> courses;
  while (const auto text = file.next()) {
    const std::string where = fmt::format("{}: line {}", options.prompts, file.line());
    try {
      const Json json = Json::parse(*text, "", {.reject_duplicate_keys = true});
      BatchLine line = parse_batch_line(json, {sampling, options.format}, runtime.tokenizer());
      courses.push_back(
          {.prompt = std::move(line.request.prompt_token_ids),
           .sampling = std::move(line.request.sampling)}
      );
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
    }
  }
  return courses;
}

std::vector<engine::DraftCourse> make_courses(
    const CalibrateOptions& options, const Runtime& runtime, int64_t length, uint64_t seed
) {
  const bool from_text = !options.text.empty();
  std::vector<engine::DraftCourse> courses =
      from_text ? courses_of_text(options, runtime, length) : courses_of_prompts(options, runtime);
  for (std::size_t i = 0; i < courses.size(); ++i) {
    const std::optional<uint64_t>& own = courses[i].sampling.seed;
    courses[i].seed = own ? *own : sampling::request_seed(seed, static_cast<int64_t>(i));
  }
  return courses;
}

/// Every second text is held out, unless all are wanted or there is only one.
CalibrationReport fit_and_check(
    const std::vector<sched::JudgedText>& texts, bool all, int64_t length
) {
  std::vector<sched::JudgedText> fit, check;
  for (std::size_t i = 0; i < texts.size(); ++i)
    (all || i % 2 == 0 ? fit : check).push_back(texts[i]);
  if (sched::blocks_of(fit).empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "no drafts were judged: the text or the answers are too short; give more of them"
    );
  }
  return make_report(fit, check, length);
}

void keep(
    const CalibrateOptions& options,
    const Runtime& runtime,
    const std::string& path,
    const CalibrationReport& report
) {
  const engine::DraftCalibration calibration{
      .model = engine::model_name(runtime.folder()),
      .fingerprint = engine::model_fingerprint(runtime.folder()),
      .temperatures = report.temperatures,
      .samples = report.samples,
      .sampling_temperature = options.temperature};
  write_file_at_once(path, engine::calibration_text(calibration));
  if (!options.plot.empty()) write_file_at_once(options.plot, report_svg(report));
}

void run(const CalibrateOptions& options) {
  if (options.text.empty() && options.prompts.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "nothing to draft along: name a text with --text, or prompts with --prompts"
    );
  }
  const engine::EngineOptions engine_options = options.engine.options();
  const int64_t num_sequences = engine_options.max_num_seqs;
  Runtime runtime(
      engine_options, {.num_sequences = num_sequences, .num_drafts = cache::kMostDrafts}
  );
  const int64_t length = engine::most_drafts(runtime.config());
  const std::vector<engine::DraftCourse> courses =
      make_courses(options, runtime, length, engine_options.seed);
  watch_interrupts();
  std::vector<sched::JudgedText> texts;
  {
    ProgressBar bar("Drafting", ProgressUnit::kTokens);
    texts = engine::run_draft_trials(
        {runtime.model(), runtime.cache(), runtime.ops(), runtime.exec()},
        courses,
        {.length = length,
         .num_sequences = num_sequences,
         .context = runtime.context(),
         .chunk = runtime.chunk(),
         .replay = runtime.replay()},
        [&](int64_t done, int64_t total) {
          if (interrupted()) throw ExitCode{kExitInterrupted};
          bar.update(done, total);
        }
    );
  }
  const CalibrationReport report = fit_and_check(texts, options.all, length);
  const std::string path = options.output.empty()
                               ? (fs::path(runtime.folder()) / engine::kCalibrationName).string()
                               : options.output;
  Json json = report_json(report);
  json.set("file", path);
  fmt::print("{}", options.json ? json.dump() + "\n" : report_text(report));
  std::fflush(stdout);
  keep(options, runtime, path, report);
  if (!options.json) fmt::print("\nwritten to {}\n", path);
}

void add_input_flags(CLI::App& command, CalibrateOptions& options) {
  CLI::Option* text =
      command
          .add_option(
              "--text", options.text, "Draft along this text, in windows that begin with BOS"
          )
          ->type_name("FILE");
  command
      .add_option(
          "--prompts", options.prompts, "Draft along the model's answers to a batch (docs/batch.md)"
      )
      ->type_name("FILE")
      ->excludes(text);
  command.add_option("--window", options.window, "Longest window of a text, in tokens")
      ->check(CLI::Range(int64_t{64}, int64_t{1} << 20))
      ->capture_default_str();
  command.add_option("-n,--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option(
          "--temperature",
          options.temperature,
          "Of the target that judges drafts; above 0 it draws by --seed"
      )
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--format", options.format, "Chat format of conversations: v4.1 or v4")
      ->check(CLI::IsMember({"v4.1", "v4"}))
      ->capture_default_str();
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Fit the drafter's confidences to what becomes of drafts (docs/drafts.md)"
  );
  add_input_flags(*command, *options);
  command->add_flag(
      "--all",
      options->all,
      "Fit to all windows or answers, not to every second one, and check on the same"
  );
  command
      ->add_option(
          "-o,--output",
          options->output,
          "The file to write (default: draft_calibration.json beside the model)"
      )
      ->type_name("FILE");
  command->add_option("--plot", options->plot, "Draw the reliability before and after (SVG)")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print a JSON object");
  std::vector<std::string> names = kLoneOptions;
  names.insert(names.end(), {"max_num_seqs", "seed"});
  options->engine.add(*command, names);
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
