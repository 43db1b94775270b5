// What becomes of the others when a row, a step or the arithmetic of one request fails.
#include <cmath>
#include <stdexcept>

#include "engine/broken_model.h"
#include "engine/scripted_device.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcript;
using testing::Transcripts;

std::unique_ptr<Engine> scripted_engine(bool async, const ScriptedDevice::Script& script) {
  EngineOptions options = testing::small_options();
  options.async_scheduling = async;
  return Engine::open(options, {}, [&](const DeviceParts&) {
    return std::make_unique<ScriptedDevice>(script);
  });
}

Request request_of(const Engine& engine, const std::string& id, int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt_token_ids = testing::random_prompt(engine, 10, 1);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

class FailureTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(
    Modes,
    FailureTest,
    ::testing::Bool(),
    [](const ::testing::TestParamInfo<bool>& mode) { return mode.param ? "Async" : "Sync"; }
);

TEST_P(FailureTest, ANonFiniteRowEndsItsRequestAlone) {
  const auto engine =
      scripted_engine(GetParam(), [](const StepInputs& step, SequenceResult& result) {
        result.draws = {{.token = 7}};
        if (result.id == 1 && step.step == 3) {
          result.draws.clear();
          result.end = DrawEnd::kNotFinite;
        }
      });
  const Transcripts all = testing::run(
      *engine,
      {request_of(*engine, "a", 9), request_of(*engine, "b", 9), request_of(*engine, "c", 9)}
  );
  EXPECT_EQ(all.at("b").only().reason, FinishReason::kFailed);
  EXPECT_NE(all.at("b").only().message.find("not finite"), std::string::npos);
  EXPECT_EQ(all.at("b").only().tokens.size(), 3);
  EXPECT_EQ(all.at("a").only().tokens.size(), 9);
  EXPECT_EQ(all.at("c").only().reason, FinishReason::kLength);
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

TEST_P(FailureTest, AFailedStepEndsItsRequestsAndTheEngineGoesOn) {
  const auto engine =
      scripted_engine(GetParam(), [](const StepInputs& step, SequenceResult& result) {
        if (step.step == 4) throw std::runtime_error("the device is on fire");
        result.draws = {{.token = 7}};
      });
  const Transcripts first =
      testing::run(*engine, {request_of(*engine, "a", 20), request_of(*engine, "b", 20)});
  for (const auto& [id, transcript] : first) {
    EXPECT_EQ(transcript.only().reason, FinishReason::kFailed);
    EXPECT_NE(transcript.only().message.find("on fire"), std::string::npos);
    EXPECT_EQ(transcript.only().tokens.size(), 4);
  }
  const Transcripts second = testing::run(*engine, {request_of(*engine, "a", 5)});
  EXPECT_EQ(second.at("a").only().reason, FinishReason::kLength);
  EXPECT_EQ(engine->stats().blocks_used, 0);
  EXPECT_EQ(engine->stats().slots_used, 0);
}

TEST_P(FailureTest, AStopStringDropsTheTokensOfStepsInFlight) {
  const auto open = [&] {
    return scripted_engine(GetParam(), [](const StepInputs& step, SequenceResult& result) {
      result.draws = {{.token = static_cast<int32_t>(300 + step.step)}};
    });
  };
  auto engine = open();
  Request request = request_of(*engine, "a", 50);
  const std::string text = testing::run(*engine, {request}).at("a").only().text;
  request.sampling.stop = {text.substr(text.size() / 2, 4)};
  engine = open();
  const Transcripts all = testing::run(*engine, {request});
  EXPECT_EQ(all.at("a").only().reason, FinishReason::kStopString);
  EXPECT_EQ(all.at("a").only().text, text.substr(0, text.find(request.sampling.stop[0])));
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

TEST_P(FailureTest, ANanInsideTheModelEndsTheRequestsThatMetItAlone) {
  constexpr int32_t kPoison = 77;
  const testing::BrokenModel broken(kPoison);
  EngineOptions options = testing::small_options();
  options.model = broken.folder();
  options.chunk = 16;
  options.async_scheduling = GetParam();
  const auto engine = Engine::open(options);
  std::vector<Request> requests = testing::mixed_requests(*engine, 6, 10);
  for (Request& request : requests) {
    std::replace(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), kPoison, 78);
    request.sampling.banned_token_ids = {kPoison};
  }
  const Transcripts healthy = testing::run(*engine, requests);
  requests[2].prompt_token_ids[1] = kPoison;
  requests[3].prompt_token_ids.back() = kPoison;
  const Transcripts all = testing::run(*engine, requests);
  for (const Request& request : requests) {
    const Transcript& transcript = all.at(request.id);
    if (request.id == requests[2].id || request.id == requests[3].id) {
      EXPECT_EQ(transcript.only().reason, FinishReason::kFailed);
      EXPECT_TRUE(transcript.only().tokens.empty());
    } else {
      testing::expect_same(healthy.at(request.id), transcript, request.id);
    }
  }
}

}  // namespace
}  // namespace di::engine
