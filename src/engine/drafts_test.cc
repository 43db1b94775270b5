// Drafts change no text: whatever is drafted, verified and rejected, requests that are verified by
// exact seed have the tokens, logprobs and ends of a run without drafts, bit for bit.
#include <fmt/format.h>

#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcripts;

constexpr int64_t kRequests = testing::kSanitized ? 12 : 33;
constexpr int64_t kMaxTokens = 14;

EngineOptions options_with(const std::string& drafts) {
  EngineOptions options = testing::small_options();
  options.drafts = drafts;
  return options;
}

/// Each request alone in an engine without drafts.
const Transcripts& each_alone() {
  static const Transcripts kTranscripts = [] {
    EngineOptions options = options_with("off");
    options.async_scheduling = false;
    options.max_num_seqs = 1;
    const auto engine = Engine::open(options);
    Transcripts all;
    for (const Request& request : testing::mixed_requests(*engine, kRequests, kMaxTokens))
      all.merge(testing::run(*engine, {request}));
    return all;
  }();
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
    ::testing::Values("1", "2", "3", "4", "5", "adaptive"),
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
    if (step < 8) engine->abort(requests[static_cast<std::size_t>(3 * step)].id);
  }
  for (auto& [id, transcript] : transcripts) {
    if (transcript.choices.begin()->second.reason == FinishReason::kAborted) continue;
    testing::expect_same(each_alone().at(id), transcript, id);
  }
  EXPECT_EQ(engine->stats().blocks_used, 0);
}

}  // namespace
}  // namespace di::engine
