// `deepinfer verify`: runs every case of a fixture folder and says how far each tensor lies from
// its golden value.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "engine/loaded_model.h"
#include "verify/model_cases.h"
#include "verify/text_cases.h"

namespace di::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  std::string folder;
  std::string model;
  bool exact = false;
  bool quiet = false;
  EngineFlags engine;
};

struct Totals {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t skipped = 0;
};

void print_tensor(const verify::TensorCheck& check) {
  const char* verdict = check.passed() ? "ok  " : "FAIL";
  if (!check.problem.empty()) {
    fmt::print("  {} {}: {}\n", verdict, check.name, check.problem);
    return;
  }
  fmt::print(
      "  {} {}: rel L2 {:.2g} (<= {:.2g}), worst row {:.2g} (<= {:.2g}), unequal {:.4f} (<= "
      "{:.4f})\n",
      verdict,
      check.name,
      check.rel_l2,
      check.max_rel_l2,
      check.worst_row,
      check.max_worst_row,
      check.unequal,
      check.max_unequal
  );
}

void print_case(const verify::CaseReport& report, bool quiet, Totals& totals) {
  const char* verdict = "passed";
  if (report.outcome == verify::Outcome::kFailed) verdict = "FAILED";
  if (report.outcome == verify::Outcome::kSkipped) verdict = "skipped";
  fmt::print("{} {}{}{}\n", verdict, report.name, report.note.empty() ? "" : ": ", report.note);
  for (const verify::TensorCheck& check : report.tensors) {
    if (!quiet || !check.passed()) print_tensor(check);
  }
  std::fflush(stdout);
  totals.passed += report.outcome == verify::Outcome::kPassed ? 1 : 0;
  totals.failed += report.outcome == verify::Outcome::kFailed ? 1 : 0;
  totals.skipped += report.outcome == verify::Outcome::kSkipped ? 1 : 0;
}

void verify_model(const VerifyOptions& options, Totals& totals) {
  engine::EngineOptions engine_options = options.engine.options();
  if (options.exact) engine_options.cuda_arithmetic = "canonical";
  const ops::OpTable& ops = engine::select_ops(engine_options);
  ThreadPool pool(engine_options.threads);
  fmt::print("backend {}, {}, {} threads\n", ops.name, ops.isa, pool.num_threads());
  const bool exact = options.exact || engine_options.backend == "ref";
  for (const auto& report : verify::verify_op_cases(options.folder, ops, pool, exact)) {
    print_case(report, options.quiet, totals);
  }
  const std::string model =
      options.model.empty() ? (fs::path(options.folder) / "tiny").string() : options.model;
  for (const auto& report : verify::verify_model_cases({options.folder, model, exact}, ops, pool)) {
    print_case(report, options.quiet, totals);
  }
}

void verify_text(const VerifyOptions& options, Totals& totals) {
  const verify::TextReport report = verify::verify_text_folder(options.folder);
  for (const verify::TextFileReport& file : report.files) {
    fmt::print(
        "{} {}: {} mismatches in {} cases, {} skipped\n",
        file.failed > 0 ? "FAILED" : "passed",
        file.file,
        file.failed,
        file.passed + file.failed,
        file.skipped_cases()
    );
    for (const auto& [reason, count] : file.skipped)
      fmt::print("  skipped {}: {}\n", count, reason);
    for (const verify::TextMismatch& mismatch : file.mismatches) {
      fmt::print("  {}: expected {}, found {}\n", mismatch.id, mismatch.expected, mismatch.found);
    }
  }
  totals.passed += report.passed();
  totals.failed += report.failed();
  totals.skipped += report.skipped();
}

void run(const VerifyOptions& options) {
  const fs::path folder = options.folder;
  const bool is_model = fs::is_directory(folder / "cases") || fs::is_directory(folder / "ops");
  const bool is_text = verify::is_text_folder(options.folder);
  if (!is_model && !is_text) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format(
            "{}: holds neither cases/ or ops/ (model fixtures) nor tokenizer/tokenizer.json (text "
            "fixtures)",
            options.folder
        )
    );
  }
  Totals totals;
  if (is_model) verify_model(options, totals);
  if (is_text) verify_text(options, totals);
  fmt::print("{} passed, {} failed, {} skipped\n", totals.passed, totals.failed, totals.skipped);
  if (totals.failed > 0) throw ExitCode{1};
}

}  // namespace

void add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Run every golden case of a fixture folder");
  command
      ->add_option(
          "folder",
          options->folder,
          "Folder with model fixtures (cases/, ops/) or text fixtures (tokenizer/, …)"
      )
      ->required()
      ->type_name("DIR");
  command
      ->add_option(
          "-m,--model", options->model, "Checkpoint that cases/ was made with (default: DIR/tiny)"
      )
      ->type_name("DIR");
  command->add_flag(
      "--exact",
      options->exact,
      "Hold cpu, or cuda in canonical arithmetic, to bit-for-bit equality, as ref always is"
  );
  command->add_flag("-q,--quiet", options->quiet, "Print failing tensors only");
  options->engine.add(*command, {"backend", "isa", "cuda_arithmetic", "threads"});
  command->callback([options] { run(*options); });
}

}  // namespace di::cli
