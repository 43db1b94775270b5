// What the program makes of the engine: options and their sources, sampling flags, batches, records
// and replays, interruption.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "program.h"

namespace di {
namespace {

namespace fs = std::filesystem;

/// A file that goes with its owner.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& name, const std::string& text = "")
      : path(temporary(name)) {
    if (!text.empty()) std::ofstream(path) << text;
  }
  ~TemporaryFile() { fs::remove(path); }
  std::string path;
};

TEST(Options, HaveAFlagEachThatArrives) {
  const std::map<std::string, std::string> samples = {
      {"model", "folder"},
      {"backend", "ref"},
      {"isa", "avx2"},
      {"cuda_arithmetic", "canonical"},
      {"threads", "3"},
      {"context", "100"},
      {"max_num_seqs", "5"},
      {"max_num_batched_tokens", "77"},
      {"chunk", "9"},
      {"num_blocks", "11"},
      {"memory_utilization", "0.5"},
      {"engram_memory", "host"},
      {"async_scheduling", "off"},
      {"max_step_ms", "2.5"},
      {"patience_seconds", "3"},
      {"max_queued_requests", "8"},
      {"max_queued_tokens", "99"},
      {"drafts", "3"},
      {"verification", "block"},
      {"draft_costs", "folder"},
      {"replay", "mask"},
      {"replay_keep", "300"},
      {"seed", "18446744073709551615"},
      {"peak_flops", "1e12"},
      {"check_integrity", "on"},
      {"banned_tokens", "1..3"},
      {"record", "file"},
      {"record_content", "on"}};
  std::string flags = "options --json";
  for (const auto& [name, value] : samples) {
    std::string flag = " --" + name;
    std::replace(flag.begin() + 3, flag.end(), '_', '-');
    flags += flag + " " + value;
  }
  const Outcome outcome = run(flags);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json json = Json::parse(outcome.output, "output");
  const Json defaults = Json::parse(run("options --json").output, "output");
  EXPECT_EQ(json.as_object().size(), samples.size()) << "every option has a sample here";
  for (const auto& [name, option] : json.as_object()) {
    EXPECT_EQ(option.at("source").as_string(), "command line") << name;
    EXPECT_FALSE(option.at("value") == defaults.at(name).at("value")) << name;
  }
  EXPECT_EQ(json.at("seed").at("value"), Json(uint64_t{18446744073709551615ULL}));
}

TEST(Options, ComeFromFileEnvironmentAndCommandLineInThisOrder) {
  const TemporaryFile config("config", R"({"threads": 1, "chunk": 5, "context": 64})");
  const Outcome outcome = run(
      "generate --temperature 0 \"What is 7 + 5?\" --context 200 --config " + config.path + kModel,
      "DEEPINFER_CHUNK=6 "
  );
  EXPECT_EQ(outcome.output, "7 + 5 = 12.\n");
  EXPECT_NE(outcome.errors.find("threads=1 (" + config.path + ")"), std::string::npos);
  EXPECT_NE(outcome.errors.find("chunk=6 (DEEPINFER_CHUNK)"), std::string::npos);
  EXPECT_NE(outcome.errors.find("context=200 (--context)"), std::string::npos);
  EXPECT_NE(run("options --verbose").errors.find("max_num_seqs=64 (default)"), std::string::npos);
}

TEST(Options, OfTheOriginalAreHonouredOrExplained) {
  const Outcome outcome = run(
      "options --json",
      "DEEPINFER_ZERO_OVERHEAD_SCHEDULING=0 DEEPINFER_HF_MODEL_DIR=here DEEPINFER_NCCL_NUM_SMS=32 "
  );
  const Json json = Json::parse(outcome.output, "output");
  EXPECT_EQ(json.at("async_scheduling").at("value"), Json(false));
  EXPECT_EQ(json.at("model").at("origin").as_string(), "DEEPINFER_HF_MODEL_DIR");
  EXPECT_NE(outcome.errors.find("DEEPINFER_NCCL_NUM_SMS has no effect"), std::string::npos);
}

TEST(Options, ThatNobodyKnowsAreRefused) {
  const Outcome variable = run("generate hello" + kModel, "DEEPINFER_TREADS=1 ");
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_NE(variable.errors.find("did you mean DEEPINFER_THREADS?"), std::string::npos)
      << variable.errors;
  EXPECT_EQ(run("generate --treads 1 hello" + kModel).exit_code, 2);
  const Outcome value = run("generate --threads 2000 hello" + kModel);
  EXPECT_EQ(value.exit_code, 2);
  EXPECT_NE(value.errors.find("a whole number from 0 to 1024"), std::string::npos) << value.errors;
}

TEST(Generate, HandsEverySamplingFlagToTheEngine) {
  const TemporaryFile record("record");
  const Outcome outcome = run(
      "generate --raw --json \"The sea\" --temperature 0.5 --top-p 0.9 --top-k 40 --min-p 0.01 "
      "--repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3 "
      "--logit-bias 5:-1.5,7:2 --allowed-token-ids 5,7,300,301,302,303 --banned-token-ids 300 "
      "--max-tokens 9 --min-tokens 2 --first-n-token-no-eos 3 --ignore-eos --stop-token-ids 304 "
      "--stop zzz --stop yyy --n 2 --logprobs --top-logprobs 2 --prompt-logprobs "
      "--processed-logprobs --golden-token-ids -1,301 --seed 12 --record-content on --record " +
      record.path + kModel
  );
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<Json> lines = json_lines(read_all(record.path));
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(
      lines[1].at("sampling").dump(),
      R"({"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1, )"
      R"("presence_penalty": 0.2, "frequency_penalty": 0.3, "logit_bias": {"5": -1.5, "7": 2.0}, )"
      R"("allowed_token_ids": [5, 7, 300, 301, 302, 303], "banned_token_ids": [300], "seed": 12, )"
      R"("max_tokens": 9, "min_tokens": 2, "first_n_token_no_eos": 3, "ignore_eos": true, )"
      R"("stop_token_ids": [304], "stop": ["zzz", "yyy"], "n": 2, "logprobs": true, )"
      R"("top_logprobs": 2, "prompt_logprobs": true, "processed_logprobs": true, )"
      R"("golden_token_ids": [-1, 301]})"
  );
  const Json json = Json::parse(outcome.output, "output");
  EXPECT_EQ(json.at("choices").as_array().size(), 2);
  const Json& choice = json.at("choices").as_array()[0];
  EXPECT_EQ(choice.at("ids").as_array()[1], Json(301));
  EXPECT_EQ(choice.at("logprobs").as_array()[0].at("top").as_array().size(), 2);
  EXPECT_EQ(
      json.at("prompt_logprobs").as_array().size(),
      static_cast<std::size_t>(json.at("prompt_tokens").as_integer() - 1)
  );
}

TEST(Generate, RefusesWhatItCannotHonour) {
  EXPECT_EQ(run("generate --logprobs hello" + kModel).exit_code, 2);
  EXPECT_EQ(run("generate --min-tokens 3 --stop x hello" + kModel).exit_code, 2);
  const Outcome outcome = run("generate --top-k many hello" + kModel);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("sampling parameter top_k"), std::string::npos) << outcome.errors;
}

TEST(Generate, EndsARawAnswerBeforeAStopStringAfterTheLeastTokens) {
  const std::string prompt = "generate --raw --temperature 0 \"The sea is\" -n 30" + kModel;
  const std::string whole = run(prompt).output;
  ASSERT_GT(whole.size(), 20U);
  const std::string stop = whole.substr(8, 4);
  const Outcome stopped = run(prompt + " --stop \"" + stop + "\"");
  EXPECT_EQ(stopped.output, whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_GT(
      run(prompt + " --stop \"" + stop + "\" --min-tokens 20").output.size(), whole.size() / 3
  );
}

TEST(Generate, TellsStatisticsAndTakesATrace) {
  const TemporaryFile trace("trace");
  const Outcome outcome =
      run("generate --temperature 0 \"What is 7 + 5?\" --stats 0 --trace-steps 4 --trace " +
          trace.path + kModel);
  EXPECT_NE(outcome.errors.find("output_tokens=9.0"), std::string::npos) << outcome.errors;
  const Json json = Json::parse(read_all(trace.path), "trace");
  EXPECT_EQ(json.at("otherData").at("num_steps"), Json(4));
}

TEST(Generate, PrintsWhatCameWhenItIsInterrupted) {
  const std::string command =
      "echo $$; exec " + std::string(DI_PROGRAM) +
      " generate --raw --ignore-eos --max-tokens 8000 \"The sea is\" 2>/dev/null" + kModel;
  std::FILE* pipe = popen(command.c_str(), "r");
  int pid = 0;
  ASSERT_EQ(std::fscanf(pipe, "%d\n", &pid), 1);
  const int first = std::fgetc(pipe);  // the answer has begun
  ASSERT_NE(first, EOF);
  kill(pid, SIGINT);
  std::string rest;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;)
    rest += static_cast<char>(c);
  EXPECT_TRUE(rest.ends_with("\n"));
  EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 130);
}

const char* const kRequests =
    R"({"id": "chat", "conversation": {"messages": [{"role": "user", "content": "What is 7 + 5?"}], )"
    R"("thinking": false}, "temperature": 0})"
    "\n\n"
    R"({"id": 7, "prompt": "The sea is", "max_tokens": 5, "temperature": 0, "n": 2})"
    "\n"
    R"({"id": "wrong", "prompt": "x", "top_q": 1})"
    "\n"
    "no JSON\n"
    R"({"prompt_token_ids": [848, 347, 1479], "max_tokens": 3, "logprobs": true})"
    "\n"
    R"({"id": "long", "prompt": "The", "prompt_token_ids": [1]})"
    "\n";

TEST(Batch, AnswersInOrderAndBadLinesInPlace) {
  const TemporaryFile requests("requests", kRequests);
  const Outcome outcome = run("batch " + requests.path + kModel);
  EXPECT_EQ(outcome.exit_code, 1);
  const std::vector<Json> lines = json_lines(outcome.output);
  ASSERT_EQ(lines.size(), 6) << outcome.output << outcome.errors;
  EXPECT_EQ(lines[0].at("id").as_string(), "chat");
  EXPECT_EQ(lines[0].at("choices").as_array()[0].at("text").as_string(), "7 + 5 = 12.");
  EXPECT_EQ(lines[1].at("id").as_integer(), 7);
  ASSERT_EQ(lines[1].at("choices").as_array().size(), 2);
  EXPECT_EQ(lines[1].at("choices").as_array()[0].at("completion_tokens").as_integer(), 5);
  EXPECT_NE(lines[2].at("error").at("message").as_string().find("top_q"), std::string::npos);
  EXPECT_NE(lines[3].at("error").at("message").as_string().find("line 5"), std::string::npos);
  EXPECT_EQ(lines[4].find("id"), nullptr);
  EXPECT_EQ(lines[4].at("choices").as_array()[0].at("logprobs").as_array().size(), 3);
  EXPECT_EQ(lines[5].at("id").as_string(), "long");
  EXPECT_EQ(lines[5].at("error").at("code").as_string(), "invalid_argument");
}

TEST(Batch, GivesTheSameAnswersWhateverRunsTogether) {
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += R"({"prompt": "Tell me a story.", "max_tokens": 12})"
            "\n";
  const TemporaryFile requests("requests", text);
  const Outcome together = run("batch --seed 3 " + requests.path + kModel);
  EXPECT_EQ(together.exit_code, 0) << together.errors;
  const Outcome alone =
      run("batch --seed 3 --max-num-seqs 1 --async-scheduling off --max-queued-requests 1 - <" +
          requests.path + kModel);
  EXPECT_EQ(together.output, alone.output);
  EXPECT_NE(together.output, run("batch --seed 4 " + requests.path + kModel).output);
}

TEST(Replay, FindsTheFirstDifferingBit) {
  const TemporaryFile requests("requests", kRequests);
  const TemporaryFile record("record");
  run("batch --record-content on --record " + record.path + " " + requests.path + kModel);
  const Outcome same = run("replay --threads 1 --chunk 3 " + record.path + kModel);
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  EXPECT_TRUE(same.output.starts_with("identical: 3 requests, ")) << same.output;

  std::string text = read_all(record.path);
  const std::size_t token = text.find("\"logprobs\": \"");
  ASSERT_NE(token, std::string::npos);
  text[token + 20] = text[token + 20] == '0' ? '1' : '0';  // the last digit of the first logprob
  const TemporaryFile changed("changed", text);
  const Outcome different = run("replay --json " + changed.path + kModel);
  EXPECT_EQ(different.exit_code, 1) << different.errors;
  const Json report = Json::parse(different.output, "output");
  EXPECT_EQ(report.at("different").as_integer(), 1);
  EXPECT_EQ(report.at("first").at("what").as_string(), "logprob");
  EXPECT_EQ(report.at("first").at("token").as_integer(), 0);
}

TEST(Replay, SaysWhyARecordCannotBeReplayed) {
  const TemporaryFile requests("requests", kRequests);
  const TemporaryFile record("record");
  run("batch --record " + record.path + " " + requests.path + kModel);
  const Outcome outcome = run("replay " + record.path + kModel);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("--record-content"), std::string::npos) << outcome.errors;
  EXPECT_EQ(run("replay " + requests.path + kModel).exit_code, 2);
  EXPECT_EQ(run("replay /nowhere" + kModel).exit_code, 2);
}

}  // namespace
}  // namespace di
