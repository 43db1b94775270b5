// `deepinfer replay`: runs a record again and reports the first differing bit.
#include "engine/replay.h"

#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_run.h"
#include "cli/interrupt.h"

namespace di::cli {
namespace {

constexpr int kExitDifferent = 1;

struct ReplayFlags {
  std::string file;
  double speed = 0;
  bool json = false;
  EngineRunFlags run;
};

/// The engine's options: what shaped the record, unless a file, a variable or a flag says
/// otherwise.
engine::EngineOptions engine_options(const ReplayFlags& flags, const engine::Record& record) {
  engine::EngineOptions options = flags.run.engine.merge(record.header.options).options;
  if (!options.record.empty() && options.record == flags.file) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--record {} would replace the record that is replayed", flags.file)
    );
  }
  return options;
}

/// Says what the record and this engine do not share.
void note_differences(const engine::Record& record, const engine::Engine& engine) {
  const engine::RecordHeader& header = record.header;
  if (record.truncated) fmt::print(stderr, "deepinfer: the record's last line is cut off\n");
  if (engine::model_fingerprint(engine.model_folder()) != header.fingerprint) {
    fmt::print(
        stderr,
        "deepinfer: the record was made with another model ({}) than {}\n",
        header.model,
        engine.model_folder()
    );
  }
  if (engine.ops().name != header.backend || engine.ops().isa != header.isa) {
    fmt::print(
        stderr,
        "deepinfer: the record was made by {} {}, this is {} {}\n",
        header.backend,
        header.isa,
        engine.ops().name,
        engine.ops().isa
    );
  }
}

Json report_json(const engine::ReplayReport& report) {
  Json json = Json::Object{
      {"identical", report.identical()},
      {"requests", report.num_requests},
      {"compared", report.num_compared},
      {"different", report.num_different},
      {"tokens", report.num_tokens}};
  if (!report.first) return json;
  const engine::Difference& first = *report.first;
  json.set(
      "first",
      Json::Object{
          {"request", first.request},
          {"id", first.request_id},
          {"choice", first.choice},
          {"token", first.token},
          {"what", first.what},
          {"expected", first.expected},
          {"found", first.found}}
  );
  return json;
}

void print_report(const engine::ReplayReport& report) {
  if (report.first) {
    fmt::print("{}\n", engine::describe(*report.first));
    fmt::print("different: {} of {} requests\n", report.num_different, report.num_requests);
    return;
  }
  fmt::print("identical: {} requests, {} tokens\n", report.num_compared, report.num_tokens);
  const int64_t without_end = report.num_requests - report.num_compared;
  if (without_end > 0) fmt::print("{} requests could not be compared\n", without_end);
}

void run(const ReplayFlags& flags) {
  const engine::Record record = engine::read_record(flags.file);
  if (!record.header.has_content) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "{}: it was made without --record-content and holds no prompts, so nothing can be run "
            "again; its hashes can be compared with another record's",
            flags.file
        )
    );
  }
  EngineRun run(flags.run, engine_options(flags, record));
  note_differences(record, run.engine());
  const engine::ReplayReport report =
      engine::replay(run.engine(), record, {.speed = flags.speed, .on_step = [&] {
                                              run.tell_stats();
                                              return !interrupted();
                                            }});
  if (flags.json) {
    fmt::print("{}\n", report_json(report).dump());
  } else {
    print_report(report);
  }
  if (!report.identical()) throw ExitCode{kExitDifferent};
  if (interrupted()) throw ExitCode{kExitInterrupted};
}

}  // namespace

void add_replay(CLI::App& app) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = app.add_subcommand(
      "replay", "Run the requests of a record again; exits with 1 when a bit differs"
  );
  command->add_option("file", flags->file, "Record made with --record FILE --record-content on")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--speed",
          flags->speed,
          "Requests arrive so many times as fast as they did; 0: as fast as the engine takes them"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print a JSON object");
  flags->run.add(*command, all_options());
  command->callback([flags] { run(*flags); });
}

}  // namespace di::cli
