// The program as a user meets it: exit codes, last lines, JSON, refusals.
#include "program.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/json.h"

namespace di {
namespace {

namespace fs = std::filesystem;

TEST(Program, AnswersThePromptOfTheReadme) {
  const Outcome outcome = run("generate --temperature 0 \"What is gravity?\"" + kModel);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("Gravity is a fundamental force of nature"))
      << outcome.output;
  EXPECT_NE(outcome.errors.find("stopped: eos"), std::string::npos);
  EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos) << "colours belong to a terminal";
}

TEST(Program, PrintsOneJsonObjectWhenAsked) {
  const Outcome outcome = run("generate --json --temperature 0 \"What is 7 + 5?\"" + kModel);
  const Json json = Json::parse(outcome.output, "output");
  EXPECT_EQ(json.at("text").as_string(), "7 + 5 = 12.");
  EXPECT_EQ(json.at("stop_reason").as_string(), "eos");
  EXPECT_EQ(json.at("completion_tokens").as_integer(), std::ssize(json.at("ids").as_array()));
}

TEST(Program, GivesTheSameTextForTheSameSeedWhateverTheChunk) {
  const std::string prompt = "generate --seed 5 -n 24 \"Tell me a story.\"" + kModel;
  const Outcome whole = run(prompt);
  EXPECT_EQ(whole.output, run(prompt + " --chunk 1 --threads 1").output);
  EXPECT_EQ(whole.output, run(prompt + " --chunk 3 --threads 2").output);
  EXPECT_NE(whole.output, run("generate --seed 6 -n 24 \"Tell me a story.\"" + kModel).output);
}

TEST(Program, ReadsThePromptFromStandardInput) {
  const Outcome outcome = run("generate --temperature 0" + kModel, "printf 'What is 7 + 5?' | ");
  EXPECT_EQ(outcome.output, "7 + 5 = 12.\n");
}

TEST(Program, EndsAnAnswerBeforeAStopString) {
  const Outcome outcome =
      run("generate --temperature 0 --stop fundamental \"What is gravity?\"" + kModel);
  EXPECT_EQ(outcome.output, "Gravity is a \n");
  EXPECT_NE(outcome.errors.find("stopped: stop_string"), std::string::npos);
}

TEST(Program, KeepsAConversationGoing) {
  const Outcome outcome =
      run("chat --temperature 0" + kModel, "printf 'Hello!\\nWhat is 7 + 5?\\n/exit\\n' | ");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("Hello! How can I help you today?"), std::string::npos)
      << outcome.output;
}

TEST(Program, TokenizesAndBack) {
  const Outcome ids = run("tokenize \"What is gravity?\"" + kModel);
  EXPECT_EQ(ids.output, "848 347 1479 88 511 33\n");
  EXPECT_EQ(run("detokenize \"848 347 1479 88 511 33\"" + kModel).output, "What is gravity?\n");
}

TEST(Program, EvaluatesAText) {
  const Json golden = Json::parse(read_all(fs::path(DI_SEEDLING) / "ppl.json"), "ppl.json");
  const Json& sample = golden.at("samples").as_array()[0];
  const fs::path file = fs::temp_directory_path() / ("deepinfer_ppl_" + std::to_string(getpid()));
  std::ofstream(file) << sample.at("text").as_string();
  const Outcome outcome = run("eval ppl --json " + file.string() + kModel);
  fs::remove(file);
  const Json result = Json::parse(outcome.output, "output");
  EXPECT_NEAR(result.at("nats_per_token").as_number(), sample.at("nll").as_number(), 1e-4);
}

TEST(Program, CalibratesTheDrafterOnAText) {
  const Json golden = Json::parse(read_all(fs::path(DI_SEEDLING) / "ppl.json"), "ppl.json");
  const std::string text = temporary("calibrate_text");
  const std::string file = temporary("calibrate_file");
  const std::string plot = temporary("calibrate_plot");
  std::ofstream(text) << golden.at("samples").as_array()[0].at("text").as_string();
  const Outcome outcome =
      run("calibrate --json --window 128 --text " + text + " -o " + file + " --plot " + plot +
          kModel);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json report = Json::parse(outcome.output, "output");
  EXPECT_TRUE(report.at("held_out").as_bool());
  EXPECT_GT(report.at("fitted_steps").as_integer(), 100);
  EXPECT_GT(report.at("checked_steps").as_integer(), 100);
  const Json& first = report.at("drafts").as_array()[0];
  EXPECT_GT(first.at("accepted").as_number(), 0.3);
  EXPECT_LT(first.at("ece_after").as_number(), 0.15);
  const Json written = Json::parse(read_all(file), file);
  EXPECT_EQ(written.at("temperatures"), report.at("temperatures"));
  EXPECT_EQ(written.at("model").as_string(), "seedling");
  EXPECT_TRUE(read_all(plot).starts_with("<svg"));
  for (const std::string& path : {text, file, plot})
    fs::remove(path);
}

TEST(Program, CalibratesTheDrafterOnAnswersWhateverSharesAStep) {
  const std::string prompts = temporary("calibrate_prompts");
  const std::string file = temporary("calibrate_file");
  std::ofstream(prompts) << "{\"prompt\": \"The sea is\"}\n"
                         << "{\"prompt\": \"Once upon a time\", \"temperature\": 1}\n"
                         << "{\"conversation\": {\"messages\": [{\"role\": \"user\", "
                            "\"content\": \"What is gravity?\"}]}}\n";
  const std::string command = "calibrate -n 20 --all --prompts " + prompts + " -o " + file + kModel;
  const Outcome together = run(command);
  ASSERT_EQ(together.exit_code, 0) << together.errors;
  EXPECT_NE(together.output.find("checked on the same"), std::string::npos) << together.output;
  const std::string written = read_all(file);
  const Outcome alone = run(command + " --max-num-seqs 1 --chunk 3 --threads 1");
  EXPECT_EQ(alone.output, together.output);
  EXPECT_EQ(read_all(file), written);
  std::ofstream(prompts) << "{\"prompt\": 5}\n";
  const Outcome broken = run(command);
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_NE(broken.errors.find(prompts + ": line 1"), std::string::npos) << broken.errors;
  EXPECT_EQ(run("calibrate" + kModel).exit_code, 2) << "neither text nor prompts";
  fs::remove(prompts);
  fs::remove(file);
}

TEST(Program, RefusesWhatCannotRun) {
  const Outcome missing = run("generate --model /nowhere hello");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.errors.find("/nowhere"), std::string::npos) << missing.errors;
  const Outcome huge = run("generate --context 100000000 hello" + kModel);
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_NE(huge.errors.find("max_position_embeddings"), std::string::npos) << huge.errors;
}

TEST(Program, ExplainsItself) {
  EXPECT_EQ(run("--help").exit_code, 0);
  for (const char* command :
       {"generate",
        "batch",
        "chat",
        "inspect",
        "verify",
        "tokenize",
        "detokenize",
        "render",
        "bench",
        "eval",
        "calibrate",
        "replay",
        "options"}) {
    const Outcome outcome = run(std::string(command) + " --help");
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_GT(outcome.output.size(), 100u) << command;
  }
  EXPECT_EQ(run("no-such-command").exit_code, 2);
  EXPECT_EQ(run("generate --temperature -1 hello" + kModel).exit_code, 2);
}

TEST(Program, HasEveryFlagOnTheFlagsPage) {
  const std::string page = read_all(DI_FLAGS_PAGE);
  const std::string help = run("--help-all").output;
  EXPECT_NE(page.find(help), std::string::npos)
      << "docs/flags.md is stale; tools/make_flags_page.sh writes it";
}

TEST(Program, InspectsModelAndMachine) {
  const Json json = Json::parse(run("inspect --json" + kModel).output, "output");
  EXPECT_EQ(json.at("configuration").at("num_hidden_layers").as_integer(), 10);
  EXPECT_GT(json.at("machine").at("read_gbps").as_number(), 0);
  EXPECT_GT(json.at("memory").at("total").as_integer(), 0);
}

TEST(Program, TimesWholeSteps) {
  const std::string sizes = " --sequences 1,3 --context 70 --rows 32 --num-steps 2";
  const std::vector<Json> lines = json_lines(run("bench step" + sizes + kModel).output);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2].at("phase").as_string(), "prefill");
  EXPECT_EQ(lines[2].at("steps").as_integer(), 9);
  EXPECT_EQ(lines[3].at("phase").as_string(), "decode");
  EXPECT_EQ(lines[3].at("steps").as_integer(), 2);
  for (const Json& line : lines)
    EXPECT_GT(line.at("us").as_number(), 0);
}

TEST(Program, ReportsAFailedCaseByItsExitCode) {
  const fs::path folder =
      fs::temp_directory_path() / ("deepinfer_verify_" + std::to_string(getpid()));
  fs::create_directories(folder / "ops");
  fs::copy(std::string(DI_TESTDATA) + "/model/ops/scalar.safetensors", folder / "ops");
  const Outcome good = run("verify " + folder.string());
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_TRUE(good.output.ends_with("1 passed, 0 failed, 0 skipped\n")) << good.output;
  std::fstream broken(
      folder / "ops/scalar.safetensors", std::ios::in | std::ios::out | std::ios::binary
  );
  broken.seekp(-40, std::ios::end);
  broken.write("\x12\x34\x56\x78", 4);
  broken.close();
  const Outcome bad = run("verify " + folder.string());
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(bad.output.ends_with("0 passed, 1 failed, 0 skipped\n")) << bad.output;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace di
