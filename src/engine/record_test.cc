// Records: what is written, what is refused, and that a replay notices every bit.
#include "engine/record.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/replay.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;

class RecordTest : public ::testing::Test {
 protected:
  ~RecordTest() override { fs::remove(path_); }

  std::unique_ptr<Engine> open_recording(bool content) const {
    EngineOptions options = testing::small_options();
    options.record = path_;
    options.record_content = content;
    return Engine::open(options);
  }

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// The record of mixed requests, one of them aborted in the middle.
  Record record_mixed(bool content = true) {
    const auto engine = open_recording(content);
    std::vector<Request> requests = testing::mixed_requests(*engine, 8, 12);
    requests[2].sampling.prompt_logprobs = true;
    requests[3].sampling.n = 3;
    requests[4].sampling.max_tokens = 300;
    requests[4].sampling.ignore_eos = true;
    requests[5].sampling.seed.reset();
    for (const Request& request : requests)
      EXPECT_FALSE(engine->add(request));
    testing::Transcripts transcripts;
    for (int i = 0; i < 9; ++i)
      testing::append(transcripts, engine->step());
    EXPECT_TRUE(engine->abort(requests[4].id));
    testing::drain(*engine, transcripts);
    return read_record(path_);
  }

  static ReplayReport run_again(const Record& record, EngineOptions options = {}) {
    if (options.model.empty()) options = testing::small_options();
    const auto engine = Engine::open(options);
    return replay(*engine, record, {});
  }

  static std::string complaint(const std::string& text) {
    try {
      parse_record(text, "file");
    } catch (const Error& error) {
      return error.what();
    }
    return "no complaint";
  }

  const std::string path_ =
      (fs::temp_directory_path() / ("deepinfer_record_test_" + std::to_string(getpid()))).string();
};

TEST_F(RecordTest, ReplaysToTheSameBits) {
  const Record record = record_mixed();
  ASSERT_EQ(record.requests.size(), 8);
  EXPECT_FALSE(record.truncated);
  EXPECT_EQ(record.requests[4].choices[0].finish_reason, "abort");
  EXPECT_GT(record.requests[4].choices[0].num_tokens, 0);
  EXPECT_TRUE(record.requests[5].request.sampling.seed);
  const ReplayReport report = run_again(record);
  EXPECT_TRUE(report.identical()) << describe(report.first.value_or(Difference()));
  EXPECT_EQ(report.num_compared, 8);
  EXPECT_GT(report.num_tokens, 80);
}

TEST_F(RecordTest, ReplaysUnderOtherSchedules) {
  const Record record = record_mixed();
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 3;
  options.chunk = 7;
  options.max_queued_requests = 3;
  options.async_scheduling = false;
  const ReplayReport report = run_again(record, options);
  EXPECT_TRUE(report.identical()) << describe(report.first.value_or(Difference()));
  EXPECT_EQ(report.num_compared, 8);
}

TEST_F(RecordTest, NamesTheFirstDifferingBit) {
  Record record = record_mixed();
  Record changed = record;
  changed.requests[6].choices[0].tokens[2].token ^= 1;
  changed.requests[3].choices[1].tokens[5].logprob =
      std::nextafter(changed.requests[3].choices[1].tokens[5].logprob, 0.0F);
  const ReplayReport report = run_again(changed);
  EXPECT_EQ(report.num_different, 2);
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->request, 3);
  EXPECT_EQ(report.first->choice, 1);
  EXPECT_EQ(report.first->token, 5);
  EXPECT_EQ(report.first->what, "logprob");
  EXPECT_NE(
      describe(*report.first).find("request 3 (\"request 3\"), choice 1, token 5: logprob is"),
      std::string::npos
  ) << describe(*report.first);
}

TEST_F(RecordTest, NoticesEndsTextsLengthsAndPromptLogprobs) {
  const Record record = record_mixed();
  const auto first_of = [&](const std::function<void(Record&)>& change) {
    Record changed = record;
    change(changed);
    changed.requests.resize(4);
    return run_again(changed).first.value_or(Difference()).what;
  };
  EXPECT_EQ(
      first_of([](Record& r) { r.requests[0].choices[0].finish_reason = "eos!"; }), "finish_reason"
  );
  EXPECT_EQ(first_of([](Record& r) { r.requests[0].choices[0].text_hash = "00"; }), "text");
  EXPECT_EQ(
      first_of([](Record& r) { r.requests[0].choices[0].tokens.pop_back(); }), "number of tokens"
  );
  EXPECT_EQ(first_of([](Record& r) { r.requests[2].prompt_logprobs[1].logprob = 1; }), "logprob");
  EXPECT_EQ(first_of([](Record& r) { r.requests[1].request.prompt_token_ids.clear(); }), "refused");
}

TEST_F(RecordTest, WithoutContentHoldsNoTokenOfPromptOrOutput) {
  const Record record = record_mixed(false);
  EXPECT_EQ(text().find("\"tokens\""), std::string::npos);
  EXPECT_EQ(text().find("\"prompt\""), std::string::npos);
  ASSERT_EQ(record.requests.size(), 8);
  EXPECT_EQ(record.requests[0].choices[0].num_tokens, 12);
  EXPECT_EQ(record.requests[0].choices[0].token_hash.size(), 64);
  EXPECT_THROW(run_again(record), Error);
  const Record again = record_mixed(false);
  for (std::size_t i : {0, 1, 2, 3, 5, 6, 7}) {
    for (std::size_t c = 0; c < record.requests[i].choices.size(); ++c) {
      EXPECT_EQ(record.requests[i].choices[c].token_hash, again.requests[i].choices[c].token_hash);
    }
  }
}

TEST_F(RecordTest, IsReadableByItsOwnerAlone) {
  open_recording(true);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(RecordTest, OutlivesTheReuseOfAnIdWhoseLastNewsWaits) {
  {
    const auto engine = open_recording(true);
    Request request = testing::mixed_requests(*engine, 1, 6)[0];
    EXPECT_FALSE(engine->add(request));
    EXPECT_TRUE(engine->abort(request.id));
    EXPECT_FALSE(engine->add(request));
    while (engine->has_work())
      engine->step();
  }
  const Record record = read_record(path_);
  ASSERT_EQ(record.requests.size(), 2);
  EXPECT_EQ(record.requests[0].choices[0].finish_reason, "abort");
  EXPECT_EQ(record.requests[1].choices[0].num_tokens, 6);
  EXPECT_TRUE(run_again(record).identical());
}

TEST_F(RecordTest, KeepsRequestsThatHadNoEnd) {
  {
    const auto engine = open_recording(true);
    EXPECT_FALSE(engine->add(testing::mixed_requests(*engine, 1, 6)[0]));
    engine->step();
  }
  const Record record = read_record(path_);
  ASSERT_EQ(record.requests.size(), 1);
  EXPECT_FALSE(record.requests[0].finished);
  const ReplayReport report = run_again(record);
  EXPECT_TRUE(report.identical());
  EXPECT_EQ(report.num_compared, 0);
}

TEST_F(RecordTest, LeavesOutALineThatWasCutOff) {
  record_mixed();
  const std::string whole = text();
  const Record cut = parse_record(std::string_view(whole).substr(0, whole.size() - 20), "file");
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.requests.size(), 8);
}

TEST_F(RecordTest, AFileThatCannotBeMadeIsRefusedAtOnce) {
  EngineOptions options = testing::small_options();
  options.record = "/nowhere/record.jsonl";
  EXPECT_THROW(Engine::open(options), Error);
}

TEST_F(RecordTest, AFullDiskEndsTheRecordAndNotTheEngine) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EngineOptions options = testing::small_options();
  options.record = "/dev/full";
  ::testing::internal::CaptureStderr();
  const auto engine = Engine::open(options);
  testing::run(*engine, testing::mixed_requests(*engine, 3, 6));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("/dev/full"), std::string::npos);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

TEST_F(RecordTest, BrokenRecordsAreRefusedByLine) {
  record_mixed();
  const std::string whole = text();
  const std::string header = whole.substr(0, whole.find('\n') + 1);
  const std::string request =
      whole.substr(header.size(), whole.find('\n', header.size()) + 1 - header.size());
  EXPECT_NE(complaint("").find("first line is missing"), std::string::npos);
  EXPECT_NE(complaint("{}\n").find("file line 1"), std::string::npos);
  EXPECT_NE(complaint("[]\n").find("file line 1"), std::string::npos);
  EXPECT_NE(complaint(header + "hello\n").find("file line 2"), std::string::npos);
  EXPECT_NE(complaint(header + request + request).find("request 1 comes next"), std::string::npos);
  EXPECT_NE(
      complaint(header + R"({"finished": 0, "time": 0, "choices": []})" + "\n")
          .find("no request 0"),
      std::string::npos
  );
  EXPECT_NE(
      complaint(header + request + R"({"finished": 0, "time": 0, "choices": []})" + "\n")
          .find("has 1 choices, its end has 0"),
      std::string::npos
  );
  std::string other = header;
  other.replace(other.find("\": 1,") + 3, 1, "9");
  EXPECT_NE(complaint(other).find("format 9"), std::string::npos) << complaint(other);
}

TEST_F(RecordTest, FingerprintsTellModelsApart) {
  const fs::path copy = path_ + "_model";
  fs::copy(DI_SEEDLING, copy, fs::copy_options::recursive);
  EXPECT_EQ(model_fingerprint(copy.string()), model_fingerprint(DI_SEEDLING));
  std::ofstream(copy / "config.json", std::ios::app) << "\n";
  EXPECT_NE(model_fingerprint(copy.string()), model_fingerprint(DI_SEEDLING));
  fs::remove_all(copy);
}

}  // namespace
}  // namespace di::engine
