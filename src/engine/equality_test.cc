// One text: what a request gives depends on the request alone, bit for bit. Every combination of
// batch, chunk, asynchrony, preemption and threads is compared with the request run alone.
#include <random>

#include <fmt/format.h>

#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcripts;

constexpr int64_t kRequests = 33;
constexpr int64_t kMaxTokens = 8;

/// Each request by itself: synchronous, whole prompts, one thread, all the memory it wants.
const Transcripts& each_alone() {
  static const Transcripts kTranscripts = testing::run_each_alone(kRequests, kMaxTokens);
  return kTranscripts;
}

struct Setting {
  int64_t chunk;
  bool async;
  bool preempted;
  int threads;

  std::string name() const {
    return fmt::format(
        "chunk {}{}{}, {} threads",
        chunk,
        async ? ", asynchronous" : "",
        preempted ? ", preempted" : "",
        threads
    );
  }
};

/// A few sizes of batches from 2 to 33, each in a random order.
void compare(const Setting& setting) {
  EngineOptions options = testing::small_options();
  options.chunk = setting.chunk;
  options.async_scheduling = setting.async;
  options.threads = setting.threads;
  if (setting.preempted) options.num_blocks = 4;  // what one full context takes
  const auto engine = Engine::open(options);
  std::vector<Request> requests = testing::mixed_requests(*engine, kRequests, kMaxTokens);
  std::mt19937 random(7);
  const std::vector<int64_t> sizes = setting.preempted || testing::kSanitized
                                         ? std::vector<int64_t>{2, 12}
                                         : std::vector<int64_t>{2, 5, 33};
  for (const int64_t size : sizes) {
    std::shuffle(requests.begin(), requests.end(), random);
    const std::vector<Request> batch(requests.begin(), requests.begin() + size);
    const Transcripts transcripts =
        setting.preempted ? testing::run_pushing_in(*engine, batch) : testing::run(*engine, batch);
    EXPECT_EQ(std::ssize(transcripts), size);
    for (const auto& [id, transcript] : transcripts) {
      testing::expect_same(
          each_alone().at(id), transcript, fmt::format("{}, batch {}, {}", setting.name(), size, id)
      );
    }
  }
  if (setting.preempted) {
    EXPECT_GT(engine->stats().total_preempted, 0);
  }
}

class OneTextMatrix : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};

TEST_P(OneTextMatrix, WhateverTheBatchAsynchronyPreemptionAndThreads) {
  const auto [chunk, preempted] = GetParam();
  for (const bool async : {false, true}) {
    for (const int threads : {1, 2})
      compare({chunk, async, preempted, threads});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Chunks,
    OneTextMatrix,
    ::testing::Combine(::testing::Values(1, 7, 128, 0), ::testing::Bool()),
    [](const ::testing::TestParamInfo<OneTextMatrix::ParamType>& chosen) {
      const int64_t chunk = std::get<0>(chosen.param);
      return (chunk == 0 ? "Whole" : "Chunk" + std::to_string(chunk)) +
             (std::get<1>(chosen.param) ? "Preempted" : "");
    }
);

TEST(OneText, OfSixtyFourMixedRequestsAtOnceIsThatOfOneByOne) {
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 64;
  const auto engine = Engine::open(options);
  const std::vector<Request> requests =
      testing::mixed_requests(*engine, testing::kSanitized ? 20 : 64, 12);
  const Transcripts together = testing::run(*engine, requests);
  for (const Request& request : requests) {
    const Transcripts alone = testing::run(*engine, {request});
    testing::expect_same(alone.at(request.id), together.at(request.id), request.id);
  }
}

}  // namespace
}  // namespace di::engine
