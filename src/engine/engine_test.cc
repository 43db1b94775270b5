// The engine as its clients see it: what is taken and refused, how requests end, what is given
// back.
#include "engine/engine.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include <unistd.h>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cache/layout.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcript;
using testing::Transcripts;

Request plain_request(const Engine& engine, const std::string& id, int64_t max_tokens = 12) {
  Request request;
  request.id = id;
  request.prompt_token_ids = engine.tokenizer().encode("The sea is", text::AddedTokens::kPlain);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  return request;
}

class EngineTest : public ::testing::TestWithParam<bool> {
 protected:
  EngineTest() { reopen(testing::small_options()); }

  void reopen(EngineOptions options) {
    engine_.reset();
    options.async_scheduling = GetParam();
    engine_ = Engine::open(options);
  }

  /// Fails when a block or slot is still held; looks at an idle engine.
  void expect_all_free() {
    EXPECT_FALSE(engine_->has_work());
    const Stats stats = engine_->stats();
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.blocks_used, 0);
    EXPECT_EQ(stats.slots_used, 0);
  }

  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(
    Modes,
    EngineTest,
    ::testing::Bool(),
    [](const ::testing::TestParamInfo<bool>& mode) { return mode.param ? "Async" : "Sync"; }
);

TEST_P(EngineTest, GivesNewsOfTheFirstTokenAfterTheFirstStepOrTheSecond) {
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "a")));
  std::vector<Output> news = engine_->step();
  if (GetParam()) {
    EXPECT_TRUE(news.empty());
    news = engine_->step();
  }
  ASSERT_EQ(news.size(), 1);
  EXPECT_EQ(news[0].request_id, "a");
  EXPECT_EQ(news[0].step, 0);
  ASSERT_EQ(news[0].choices.size(), 1);
  EXPECT_EQ(news[0].choices[0].tokens.size(), 1);
}

TEST_P(EngineTest, TextIsTheTokensDecoded) {
  const Transcripts all = testing::run(*engine_, {plain_request(*engine_, "a", 40)});
  const Transcript::Choice& choice = all.at("a").only();
  std::vector<int32_t> ids = choice.ids();
  if (choice.reason == FinishReason::kEos) ids.pop_back();
  EXPECT_EQ(choice.text, engine_->tokenizer().decode(ids));
  EXPECT_FALSE(choice.text.empty());
}

TEST_P(EngineTest, RefusesInPlaceWhatItCannotServeAndTheOthersGoOn) {
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "good")));
  const auto refusal_of = [&](auto change) {
    Request request = plain_request(*engine_, "bad");
    change(request);
    const auto refusal = engine_->add(request);
    return refusal ? refusal->message : "taken";
  };
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(refusal_of([](Request& r) { r.id = "good"; }), "still runs");
  expect_says(refusal_of([](Request& r) { r.id = ""; }), "no id");
  expect_says(refusal_of([](Request& r) { r.prompt_token_ids.clear(); }), "no tokens");
  expect_says(refusal_of([](Request& r) { r.prompt_token_ids[1] = -1; }), "prompt token 1 is -1");
  expect_says(refusal_of([](Request& r) { r.prompt_token_ids[0] = 1 << 30; }), "vocabulary");
  expect_says(refusal_of([](Request& r) { r.prompt_token_ids.resize(512, 5); }), "context of 512");
  expect_says(refusal_of([](Request& r) { r.sampling.temperature = NAN; }), "temperature");
  expect_says(refusal_of([](Request& r) { r.priority = 101; }), "priority");
  expect_says(refusal_of([](Request& r) { r.timeout_seconds = -1; }), "timeout_seconds");
  Transcripts all;
  testing::drain(*engine_, all);
  EXPECT_EQ(all.size(), 1);
  EXPECT_EQ(all.at("good").num_finished, 1);
  expect_all_free();
}

TEST_P(EngineTest, AnIdMayBeUsedAgainAfterItsRequestEnded) {
  const Transcripts first = testing::run(*engine_, {plain_request(*engine_, "a")});
  const Transcripts second = testing::run(*engine_, {plain_request(*engine_, "a")});
  testing::expect_same(first.at("a"), second.at("a"), "again");
}

TEST_P(EngineTest, EndsAtMaxTokensExactly) {
  Request request = plain_request(*engine_, "a", 5);
  request.sampling.ignore_eos = true;
  const Transcripts all = testing::run(*engine_, {request});
  EXPECT_EQ(all.at("a").only().tokens.size(), 5);
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kLength);
}

TEST_P(EngineTest, EndsWhereTheContextEndsExactly) {
  Request request = plain_request(*engine_, "a", 100000);
  request.prompt_token_ids = testing::random_prompt(*engine_, 500, 1);
  request.sampling.ignore_eos = true;
  const Transcripts all = testing::run(*engine_, {request});
  EXPECT_EQ(all.at("a").only().tokens.size(), 12);
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kContext);
}

TEST_P(EngineTest, HugeMaxTokensCostNothing) {
  Request request = plain_request(*engine_, "a", std::numeric_limits<int32_t>::max());
  request.sampling.golden_token_ids = {
      5, 6, static_cast<int32_t>(engine_->config().tokens.eos_token_id)};
  const Transcripts all = testing::run(*engine_, {request});
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kEos);
}

TEST_P(EngineTest, AbortsInEveryStateWithOneLastWordAndGivesEverythingBack) {
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 3;
  options.num_blocks = 6;
  options.chunk = 32;
  reopen(options);
  const Request longest = [&] {
    Request request = plain_request(*engine_, "", 30);
    request.prompt_token_ids = testing::random_prompt(*engine_, 300, 3);
    request.sampling.ignore_eos = true;
    return request;
  }();
  for (int64_t steps = 0; steps < 40;
       steps += testing::kSanitized ? 9 : 3) {  // 10 chunks, then decode, then preempted too
    std::vector<Request> requests(5, longest);
    Transcripts all;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].id = std::to_string(i);
      requests[i].sampling.n = i == 2 ? 2 : 1;
      ASSERT_FALSE(engine_->add(requests[i]));
    }
    for (int64_t step = 0; step < steps; ++step)
      testing::append(all, engine_->step());
    for (const Request& request : requests)
      engine_->abort(request.id);
    EXPECT_FALSE(engine_->abort("0")) << "gone already";
    testing::drain(*engine_, all);
    for (const Request& request : requests) {
      EXPECT_EQ(all[request.id].num_finished, 1) << request.id << " after " << steps;
    }
    expect_all_free();
  }
}

TEST_P(EngineTest, AnAbortedRequestSaysAbort) {
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "a", 100)));
  Transcripts all;
  for (int step = 0; step < 4; ++step)
    testing::append(all, engine_->step());
  EXPECT_TRUE(engine_->abort("a"));
  testing::drain(*engine_, all);
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kAborted);
  EXPECT_FALSE(all.at("a").only().tokens.empty());
}

TEST_P(EngineTest, AnotherRequestGoesOnUnchangedWhenOneIsAborted) {
  const Transcripts alone = testing::run(*engine_, {plain_request(*engine_, "a", 30)});
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "a", 30)));
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "b", 30)));
  Transcripts all;
  for (int step = 0; step < 5; ++step)
    testing::append(all, engine_->step());
  engine_->abort("b");
  testing::drain(*engine_, all);
  testing::expect_same(alone.at("a"), all.at("a"), "beside an abort");
}

TEST_P(EngineTest, ATimeoutEndsARequest) {
  Request request = plain_request(*engine_, "a", 400);
  request.sampling.ignore_eos = true;
  request.timeout_seconds = 1e-9;
  const Transcripts all = testing::run(*engine_, {request});
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kTimeout);
  EXPECT_TRUE(all.at("a").only().tokens.empty()) << "an end is no token";
  expect_all_free();
}

TEST_P(EngineTest, AFullQueueRefusesAndSaysBusy) {
  EngineOptions options = testing::small_options();
  options.max_queued_requests = 3;
  options.max_queued_tokens = 1000;
  reopen(options);
  for (int i = 0; i < 3; ++i)
    ASSERT_FALSE(engine_->add(plain_request(*engine_, std::to_string(i))));
  const auto refusal = engine_->add(plain_request(*engine_, "one too many"));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, ErrorCode::kBusy);
  Transcripts all;
  testing::drain(*engine_, all);
  EXPECT_EQ(all.size(), 3);
}

TEST_P(EngineTest, AFullTokenQueueRefusesAndSaysBusy) {
  EngineOptions options = testing::small_options();
  options.max_queued_tokens = 1000;
  reopen(options);
  std::optional<Refusal> refusal;
  for (int i = 0; i < 4 && !refusal; ++i) {
    Request request = plain_request(*engine_, std::to_string(i));
    request.prompt_token_ids = testing::random_prompt(*engine_, 300, 1);
    refusal = engine_->add(request);
  }
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, ErrorCode::kBusy);
}

TEST_P(EngineTest, ManyChoicesAreWhatEachWouldBeAlone) {
  Request request = plain_request(*engine_, "n", 16);
  request.prompt_token_ids = testing::random_prompt(*engine_, 200, 9);
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  request.sampling.logprobs = true;
  request.sampling.n = 6;
  const Transcripts together = testing::run(*engine_, {request});
  ASSERT_EQ(together.at("n").choices.size(), 6);
  std::set<std::vector<int32_t>> different;
  for (const auto& [index, choice] : together.at("n").choices) {
    Request lone = request;
    lone.id = "lone";
    lone.sampling.n = 1;
    lone.sampling.seed = sampling::choice_seed(5, index);
    const Transcripts alone = testing::run(*engine_, {lone});
    testing::expect_same_tokens(alone.at("lone").only().tokens, choice.tokens, "choice");
    different.insert(choice.ids());
  }
  EXPECT_GT(different.size(), 3);
  expect_all_free();
}

TEST_P(EngineTest, ChoicesThatFindNoRoomComputeTheirPromptThemselves) {
  Request request = plain_request(*engine_, "n", 16);
  request.prompt_token_ids = testing::random_prompt(*engine_, 200, 9);
  request.sampling.temperature = 1;
  request.sampling.n = 6;
  request.sampling.seed = 5;
  const Transcripts roomy = testing::run(*engine_, {request});
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 2;
  options.num_blocks = 4;
  reopen(options);
  const Transcripts tight = testing::run(*engine_, {request});
  testing::expect_same(roomy.at("n"), tight.at("n"), "tight");
  expect_all_free();
}

TEST_P(EngineTest, EqualPromptsWithoutSeedsDrawDifferently) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(plain_request(*engine_, std::to_string(i), 16));
    requests.back().sampling.temperature = 1;
  }
  const Transcripts all = testing::run(*engine_, requests);
  std::set<std::vector<int32_t>> different;
  for (const auto& [id, transcript] : all)
    different.insert(transcript.only().ids());
  EXPECT_GT(different.size(), 2);
}

TEST_P(EngineTest, StopStringsEndTheTextBeforeThem) {
  Request request = plain_request(*engine_, "a", 40);
  request.sampling.ignore_eos = true;
  const std::string text = testing::run(*engine_, {request}).at("a").only().text;
  ASSERT_GT(text.size(), 20);
  const std::string stop = text.substr(11, 6);
  request.sampling.stop = {stop, "no such text anywhere"};
  const Transcripts all = testing::run(*engine_, {request});
  const Transcript::Choice& choice = all.at("a").only();
  EXPECT_EQ(choice.reason, FinishReason::kStopString);
  EXPECT_EQ(choice.message, stop);
  EXPECT_EQ(choice.text, text.substr(0, text.find(stop)));
  expect_all_free();
}

TEST_P(EngineTest, HeldTextComesOutWhenTheStopStringDoesNot) {
  Request request = plain_request(*engine_, "a", 20);
  request.sampling.ignore_eos = true;
  const std::string text = testing::run(*engine_, {request}).at("a").only().text;
  request.sampling.stop = {text.substr(text.size() - 3) + "never"};
  EXPECT_EQ(testing::run(*engine_, {request}).at("a").only().text, text);
}

TEST_P(EngineTest, StopTokensEndLikeEos) {
  Request request = plain_request(*engine_, "a", 20);
  const std::vector<int32_t> ids = testing::run(*engine_, {request}).at("a").only().ids();
  ASSERT_GT(ids.size(), 4);
  request.sampling.stop_token_ids = {ids[3]};
  const Transcripts all = testing::run(*engine_, {request});
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kStopToken);
  EXPECT_EQ(all.at("a").only().ids().back(), ids[3]);
}

TEST_P(EngineTest, ForcedTokensAreTheOutputWithTheirLogprobs) {
  Request request = plain_request(*engine_, "a", 12);
  request.sampling.logprobs = true;
  const Transcript free = testing::run(*engine_, {request}).at("a");
  request.sampling.golden_token_ids = free.only().ids();
  request.sampling.temperature = 1;
  request.sampling.seed = 3;
  const Transcript forced = testing::run(*engine_, {request}).at("a");
  testing::expect_same_tokens(free.only().tokens, forced.only().tokens, "forced");
}

TEST_P(EngineTest, PromptLogprobsComeOnceAndEqualForcedOnes) {
  Request request = plain_request(*engine_, "a", 4);
  request.prompt_token_ids = testing::random_prompt(*engine_, 150, 4);
  request.sampling.logprobs = true;
  request.sampling.prompt_logprobs = true;
  EngineOptions options = testing::small_options();
  options.chunk = 40;
  reopen(options);
  const Transcript whole = testing::run(*engine_, {request}).at("a");
  ASSERT_EQ(whole.prompt_logprobs.size(), 149);
  Request forced = request;
  forced.sampling.prompt_logprobs = false;
  forced.prompt_token_ids.resize(100);
  forced.sampling.max_tokens = 50;
  forced.sampling.golden_token_ids.assign(
      request.prompt_token_ids.begin() + 100, request.prompt_token_ids.end()
  );
  const Transcript tail = testing::run(*engine_, {forced}).at("a");
  testing::expect_same_tokens(
      {whole.prompt_logprobs.begin() + 99, whole.prompt_logprobs.end()},
      tail.only().tokens,
      "prompt logprobs"
  );
}

TEST_P(EngineTest, PromptLogprobsAreNotRepeatedAfterPreemption) {
  EngineOptions options = testing::small_options();
  options.num_blocks = 4;
  options.chunk = 96;
  reopen(options);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(plain_request(*engine_, std::to_string(i), 20));
    requests.back().prompt_token_ids = testing::random_prompt(*engine_, 190, 4);
    requests.back().sampling.prompt_logprobs = true;
    requests.back().sampling.ignore_eos = true;
  }
  const Transcripts all = testing::run_pushing_in(*engine_, requests);
  EXPECT_GT(engine_->stats().total_preempted, 0);
  for (const Request& request : requests) {
    EXPECT_EQ(all.at(request.id).prompt_logprobs.size(), 189);
    testing::expect_same(all.at("0"), all.at(request.id), request.id);
  }
}

TEST_P(EngineTest, FlushTellsWhatIsInFlightAndRequestsGoOn) {
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "a", 10)));
  Transcripts all;
  for (int i = 0; i < 3; ++i) {
    testing::append(all, engine_->step());
    testing::append(all, engine_->flush());
  }
  EXPECT_EQ(all.at("a").only().tokens.size(), 3);
  testing::drain(*engine_, all);
  const Transcripts again = testing::run(*engine_, {plain_request(*engine_, "b", 10)});
  testing::expect_same(all.at("a"), again.at("b"), "flushed");
}

TEST_P(EngineTest, MayBeClosedInTheMiddle) {
  for (int i = 0; i < 5; ++i)
    ASSERT_FALSE(engine_->add(plain_request(*engine_, std::to_string(i), 100)));
  for (int i = 0; i < 3; ++i)
    engine_->step();
  engine_.reset();
}

TEST_P(EngineTest, TenThousandAbortsAtOnceAllGetTheirLastWord) {
  EngineOptions options = testing::small_options();
  options.max_queued_requests = 20000;
  reopen(options);
  constexpr int kMany = 10001;
  for (int i = 0; i < kMany; ++i)
    ASSERT_FALSE(engine_->add(plain_request(*engine_, std::to_string(i))));
  for (int i = 0; i < kMany; ++i)
    ASSERT_TRUE(engine_->abort(std::to_string(i)));
  Transcripts all;
  testing::drain(*engine_, all);
  EXPECT_EQ(all.size(), kMany);
  expect_all_free();
}

TEST_P(EngineTest, NewsOutliveTheEngine) {
  ASSERT_FALSE(engine_->add(plain_request(*engine_, "a", 6)));
  std::vector<Output> news;
  while (engine_->has_work()) {
    for (Output& output : engine_->step())
      news.push_back(std::move(output));
  }
  engine_.reset();
  ASSERT_EQ(news.size(), 6);
  for (const Output& output : news)
    EXPECT_EQ(output.request_id, "a");
}

TEST_P(EngineTest, TwoEnginesShareNothing) {
  const std::vector<Request> requests = testing::mixed_requests(*engine_, 6, 8);
  const Transcripts alone = testing::run(*engine_, requests);
  const auto other = Engine::open(testing::small_options());
  Transcripts first;
  Transcripts second;
  for (const Request& request : requests) {
    ASSERT_FALSE(engine_->add(request));
    ASSERT_FALSE(other->add(request));
  }
  while (engine_->has_work() || other->has_work()) {  // in turns
    if (engine_->has_work()) testing::append(first, engine_->step());
    if (other->has_work()) testing::append(second, other->step());
  }
  for (const Request& request : requests) {
    testing::expect_same(alone.at(request.id), first.at(request.id), request.id);
    testing::expect_same(alone.at(request.id), second.at(request.id), request.id);
  }
}

TEST_P(EngineTest, TimeToTheFirstTokenCountsFromTheRequestsArrival) {
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 1;
  reopen(options);
  for (const char* id : {"first", "second"}) {
    Request request = plain_request(*engine_, id, 20);
    request.sampling.ignore_eos = true;
    ASSERT_FALSE(engine_->add(request));
  }
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto both_arrived = now();
  Transcripts all;
  while (all["first"].num_finished == 0)
    testing::append(all, engine_->step());
  const std::chrono::duration<double> waited = now() - both_arrived;
  testing::drain(*engine_, all);
  EXPECT_GE(engine_->stats().ttft_seconds->max, waited.count()) << "the second waited so long";
}

TEST_P(EngineTest, ATraceShowsThePhasesOfBothThreads) {
  const std::string path =
      ::testing::TempDir() + "engine_trace_" + std::to_string(::getpid()) + ".json";
  engine_->trace(path, 3);
  EXPECT_THROW(engine_->trace(path, 3), Error) << "one at a time";
  testing::run(*engine_, {plain_request(*engine_, "a", 6)});
  const Json trace = Json::parse(read_text_file(path), path);
  std::map<std::string, int> spans;
  std::set<std::string> tracks;
  for (const Json& event : trace.at("traceEvents").as_array()) {
    const bool is_span = event.at("ph").as_string() == "X";
    if (is_span) ++spans[event.at("name").as_string()];
    if (event.at("name").as_string() == "thread_name")
      tracks.insert(event.at("args").at("name").as_string());
  }
  EXPECT_TRUE(tracks.contains("engine"));
  EXPECT_GE(spans["plan"], 3);
  EXPECT_EQ(spans["apply"], 3);
  if (testing::backend() == "cuda") {
    EXPECT_TRUE(tracks.contains("device"));
    EXPECT_GE(spans["prefill"] + spans["decode"], 3);
    EXPECT_GT(spans["sparse_attention"], spans["prefill"]);
    EXPECT_NE(tracks.contains("kernels"), trace.at("otherData").find("kernels") != nullptr)
        << "kernels are named, or the trace says why not";
  } else {
    EXPECT_TRUE(tracks.contains("compute"));
    EXPECT_GE(spans["forward"], 3);
    EXPECT_GE(spans["draw"], 3);
    EXPECT_GT(spans["sparse_attention"], spans["forward"]);
  }
  std::filesystem::remove(path);
}

TEST(EngineOpen, PlansTheMemoryThatTheCacheTakes) {
  const auto engine = Engine::open(testing::small_options());
  const cache::Layout layout = cache::make_layout(engine->config());
  EXPECT_EQ(engine->num_blocks(), 40 * 4) << "four blocks for each of forty sequences";
  EXPECT_EQ(engine->memory_plan().blocks, engine->num_blocks() * layout.block_bytes);
  EXPECT_EQ(engine->memory_plan().slots, engine->stats().slots_total * layout.slot_bytes);
  EXPECT_GT(engine->stats().slots_total, 40) << "spare ones for steps in flight";
}

TEST(EngineOpen, RefusesOptionsThatCannotBeMetWithTheirNames) {
  const auto message_of = [](auto change) {
    EngineOptions options = testing::small_options();
    change(options);
    try {
      Engine::open(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("opened");
  };
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(message_of([](EngineOptions& o) { o.max_num_seqs = 0; }), "max_num_seqs");
  expect_says(
      message_of([](EngineOptions& o) { o.max_num_batched_tokens = 39; }), "one row of every"
  );
  expect_says(message_of([](EngineOptions& o) { o.backend = "gpu"; }), "backend");
  expect_says(message_of([](EngineOptions& o) { o.num_blocks = 3; }), "num_blocks is 3");
  expect_says(message_of([](EngineOptions& o) { o.context = int64_t{1} << 30; }), "context");
  expect_says(message_of([](EngineOptions& o) { o.model = "/nowhere"; }), "/nowhere");
  expect_says(message_of([](EngineOptions& o) { o.num_blocks = int64_t{1} << 33; }), "memory");
}

}  // namespace
}  // namespace di::engine
