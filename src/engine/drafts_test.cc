// Drafts change no text: whatever is drafted, verified and rejected, requests that are verified by
// exact seed have the tokens, logprobs and ends of a run without drafts, bit for bit.
#include <algorithm>

#include <fmt/format.h>

#include "engine/broken_model.h"
#include "engine/calibration_file.h"
#include "engine/record.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcripts;

constexpr int64_t kRequests = testing::kSanitized ? 10 : 33;
constexpr int64_t kMaxTokens = 14;

EngineOptions options_with(const std::string& drafts) {
  EngineOptions options = testing::small_options();
  options.drafts = drafts;
  return options;
}

/// Each request alone in an engine without drafts.
const Transcripts& each_alone() {
  static const Transcripts kTranscripts = testing::run_each_alone(kRequests, kMaxTokens);
  return kTranscripts;
}

void expect_same_as_alone(const Transcripts& transcripts, const std::string& what) {
  ASSERT_EQ(std::ssize(transcripts), kRequests) << what;
  for (const auto& [id, transcript] : transcripts)
    testing::expect_same(each_alone().at(id), transcript, fmt::format("{}, {}", what, id));
}

class DraftMatrix : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(
    Drafts,
    DraftMatrix,
    ::testing::ValuesIn(
        testing::kSanitized ? std::vector<std::string>{"5", "adaptive"}
                            : std::vector<std::string>{"1", "2", "3", "4", "5", "adaptive"}
    ),
    [](const ::testing::TestParamInfo<std::string>& mode) { return "Of" + mode.param; }
);

TEST_P(DraftMatrix, OneTextWhateverTheChunkAsynchronyAndThreads) {
  for (const int64_t chunk : {0, 7}) {
    for (const bool async : {false, true}) {
      EngineOptions options = options_with(GetParam());
      options.chunk = chunk;
      options.async_scheduling = async;
      options.threads = async ? 2 : 1;
      const auto engine = Engine::open(options);
      const auto requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
      const std::string what = fmt::format("chunk {}, asynchronous {}", chunk, async);
      expect_same_as_alone(testing::run(*engine, requests), what);
      EXPECT_GT(engine->stats().drafts_verified, 0);
    }
  }
}

TEST_P(DraftMatrix, OneTextWhenOthersTakeTheMemory) {
  for (const bool async : {false, true}) {
    EngineOptions options = options_with(GetParam());
    options.async_scheduling = async;
    options.num_blocks = 4;
    const auto engine = Engine::open(options);
    const auto requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
    expect_same_as_alone(testing::run_pushing_in(*engine, requests), "preempted");
    EXPECT_GT(engine->stats().total_preempted, 0);
  }
}

TEST_P(DraftMatrix, OneTextWhenRowsAreFew) {
  EngineOptions options = options_with(GetParam());
  options.max_num_seqs = 5;
  options.max_num_batched_tokens = 9;
  const auto engine = Engine::open(options);
  const auto requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
  expect_same_as_alone(testing::run(*engine, requests), "nine rows a step");
}

TEST_P(DraftMatrix, AnAbortInFlightLeavesTheOthersAlone) {
  const auto engine = Engine::open(options_with(GetParam()));
  const auto requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
  Transcripts transcripts;
  for (const Request& request : requests)
    ASSERT_FALSE(engine->add(request));
  for (int step = 0; engine->has_work(); ++step) {
    testing::append(transcripts, engine->step());
    const auto next = static_cast<std::size_t>(3 * step);
    if (step < 8 && next < requests.size()) engine->abort(requests[next].id);
  }
  for (auto& [id, transcript] : transcripts) {
    if (transcript.choices.begin()->second.reason == FinishReason::kAborted) continue;
    testing::expect_same(each_alone().at(id), transcript, id);
  }
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

/// One greedy request of the engine's own words.
Request greedy_request(const Engine& engine, int64_t max_tokens) {
  Request request;
  request.id = "greedy";
  request.prompt_token_ids = engine.tokenizer().encode("The sea is", text::AddedTokens::kPlain);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = max_tokens;
  request.sampling.logprobs = true;
  return request;
}

/// The same requests without drafts and with them, in engines like `options`.
void expect_same_with_drafts(
    EngineOptions options, const std::string& drafts, const std::vector<Request>& requests
) {
  options.drafts = "off";
  const Transcripts plain = testing::run(*Engine::open(options), requests);
  options.drafts = drafts;
  for (const bool async : {false, true}) {
    options.async_scheduling = async;
    const auto engine = Engine::open(options);
    const Transcripts drafted = testing::run(*engine, requests);
    for (const auto& [id, transcript] : plain)
      testing::expect_same(transcript, drafted.at(id), id);
    EXPECT_EQ(engine->stats().blocks_used, 0);
  }
}

TEST_P(DraftMatrix, EndsInsideABlockAreWhereTheyAreWithoutDrafts) {
  const auto engine = Engine::open(options_with("off"));
  const Request whole = greedy_request(*engine, 40);
  const testing::Transcript told = testing::run(*engine, {whole}).at("greedy");
  const std::vector<int32_t> ids = told.only().ids();
  std::vector<Request> requests;
  const auto add = [&](const std::string& id) -> sampling::SamplingParams& {
    requests.push_back(whole);
    requests.back().id = id;
    return requests.back().sampling;
  };
  for (int64_t length = 1; length <= 9; ++length)
    add(fmt::format("{} tokens", length)).max_tokens = length;
  for (const std::size_t at : {3, 4, 5, 6, 7, 20}) {
    add(fmt::format("stop token {}", at)).stop_token_ids = {ids[at]};
    add(fmt::format("stop string {}", at)).stop = {told.only().text.substr(2 * at, 3)};
  }
  expect_same_with_drafts(options_with("off"), GetParam(), requests);
}

TEST_P(DraftMatrix, TheContextEndsInsideABlockWhereItDoesWithoutDrafts) {
  EngineOptions options = options_with("off");
  options.context = 133;
  const auto engine = Engine::open(options);
  std::vector<Request> requests;
  for (std::size_t length = 122; length <= 132; length += 2) {
    requests.push_back(greedy_request(*engine, 40));
    requests.back().id = fmt::format("prompt of {}", length);
    requests.back().prompt_token_ids = testing::random_prompt(*engine, length, 1);
  }
  expect_same_with_drafts(options, GetParam(), requests);
}

TEST(Drafts, ThatAreWhatTheTargetDrawsAreAllAccepted) {
  const auto engine = Engine::open(options_with("5"));
  std::vector<Request> requests;
  for (const double temperature : {0.0, 1.0}) {
    Request request = greedy_request(*engine, 61);
    request.id = fmt::format("at temperature {}", temperature);
    request.sampling.temperature = temperature;
    request.sampling.golden_token_ids = testing::random_prompt(*engine, 61, 7);
    requests.push_back(std::move(request));
  }
  testing::run(*engine, requests);
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.draft_acceptance_by_position, std::vector<double>(5, 1.0));
  EXPECT_EQ(stats.drafts_accepted, 2 * 50) << "ten steps of six tokens behind the first one";
}

TEST(Drafts, ARejectedRowThatIsNotFiniteLeavesNoTrace) {
  const auto healthy = Engine::open(options_with("off"));
  const std::vector<Request> requests = testing::mixed_requests(*healthy, 12, 14);
  std::map<int32_t, int64_t> counts;
  for (const auto& [id, transcript] : testing::run(*healthy, requests)) {
    for (const int32_t token : transcript.choices.at(0).ids())
      ++counts[token];
  }
  std::vector<std::pair<int64_t, int32_t>> often;
  for (const auto& [token, count] : counts)
    often.emplace_back(-count, token);
  std::sort(often.begin(), often.end());
  for (std::size_t i = 0; i < (testing::kSanitized ? 1 : 3); ++i) {
    const testing::BrokenModel broken(often[i].second);
    EngineOptions options = options_with("off");
    options.model = broken.folder();
    const Transcripts plain = testing::run(*Engine::open(options), requests);
    options.drafts = "5";
    const Transcripts drafted = testing::run(*Engine::open(options), requests);
    for (const auto& [id, transcript] : plain)
      testing::expect_same(
          transcript, drafted.at(id), fmt::format("{}, token {}", id, often[i].second)
      );
  }
}

TEST(Drafts, AreEstimatedByTheCalibrationBesideTheModel) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("deepinfer_calibrated_" + std::to_string(::getpid()));
  std::filesystem::copy(DI_SEEDLING, folder, std::filesystem::copy_options::recursive);
  std::filesystem::permissions(
      folder, std::filesystem::perms::owner_all, std::filesystem::perm_options::add
  );
  const auto error_with = [&](double temperature) {
    DraftCalibration calibration{.model = "seedling", .fingerprint = model_fingerprint(folder)};
    calibration.temperatures = {temperature};
    calibration.samples = {100};
    std::ofstream(folder / kCalibrationName) << calibration_text(calibration);
    EngineOptions options = options_with("3");
    options.model = folder.string();
    const auto engine = Engine::open(options);
    testing::run(*engine, {greedy_request(*engine, 40)});
    return engine->stats().draft_confidence_error.value();
  };
  EXPECT_NE(error_with(1), error_with(2));
  std::ofstream(folder / kCalibrationName) << "{";
  EngineOptions options = options_with("3");
  options.model = folder.string();
  EXPECT_THROW(Engine::open(options), Error);
  std::filesystem::remove_all(folder);
}

TEST(Drafts, AChoiceByBlocksEndsAsOthersDo) {
  EngineOptions options = options_with("5");
  options.verification = "block";
  const auto engine = Engine::open(options);
  std::vector<Request> requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
  for (const auto& [id, transcript] : testing::run(*engine, requests)) {
    for (const auto& [index, choice] : transcript.choices)
      EXPECT_TRUE(choice.reason) << id;
  }
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_GT(engine->stats().drafts_accepted, 0);
}

}  // namespace
}  // namespace di::engine
