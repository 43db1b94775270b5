// Many threads, one engine.
#include "engine/engine_thread.h"

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "engine/testing.h"

namespace di::engine {
namespace {

using testing::Transcripts;

std::unique_ptr<Engine> open_small() {
  EngineOptions options = testing::small_options();
  options.threads = 2;
  return Engine::open(options);
}

Transcripts read_all(OutputStream& stream) {
  Transcripts transcripts;
  while (auto output = stream.next()) {
    std::vector<Output> news;
    news.push_back(std::move(*output));
    testing::append(transcripts, std::move(news));
  }
  return transcripts;
}

TEST(EngineThread, ServesManyThreadsTheTextsThatEachWouldGetAlone) {
  constexpr int64_t kThreads = testing::kSanitized ? 4 : 16;
  auto engine = open_small();
  const std::vector<Request> requests = testing::mixed_requests(*engine, kThreads, 10);
  Transcripts alone;
  for (const Request& request : requests)
    alone.merge(testing::run(*engine, {request}));
  EngineThread service(std::move(engine));
  std::latch start(kThreads);
  std::vector<std::future<Transcripts>> answers;
  for (const Request& request : requests) {
    answers.push_back(std::async(std::launch::async, [&, request] {
      start.arrive_and_wait();
      return read_all(*service.stream(request));
    }));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Transcripts answer = answers[i].get();
    testing::expect_same(alone.at(requests[i].id), answer.at(requests[i].id), requests[i].id);
  }
}

TEST(EngineThread, TellsARefusedRequestInItsStreamAndTheOtherGoesOn) {
  auto engine = open_small();
  std::vector<Request> requests = testing::mixed_requests(*engine, 2, 6);
  requests[1].prompt_token_ids = {-5};
  EngineThread service(std::move(engine));
  const auto good = service.stream(requests[0]);
  const auto bad = service.stream(requests[1]);
  const Transcripts refused = read_all(*bad);
  ASSERT_EQ(refused.size(), 1);
  EXPECT_EQ(refused.at(requests[1].id).only().reason, FinishReason::kRefused);
  EXPECT_NE(refused.at(requests[1].id).only().message.find("-5"), std::string::npos);
  EXPECT_EQ(read_all(*good).at(requests[0].id).num_finished, 1);
}

TEST(EngineThread, AbortsFromAnyThreadWhileStepsRun) {
  auto engine = open_small();
  std::vector<Request> requests = testing::mixed_requests(*engine, 8, 400);
  for (Request& request : requests) {
    request.sampling = {.ignore_eos = true};
    request.sampling.max_tokens = 300;
  }
  EngineThread service(std::move(engine));
  std::vector<std::thread> clients;
  for (const Request& request : requests) {
    clients.emplace_back([&, request] {
      const auto stream = service.stream(request);
      ASSERT_TRUE(stream->next());
      service.abort(request.id);
      std::optional<Output> last;
      while (auto output = stream->next())
        last = std::move(output);
      if (last) {
        EXPECT_TRUE(last->finished);
      }
    });
  }
  for (std::thread& client : clients)
    client.join();
  const Stats stats = service.stats();
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.slots_used, 0);
}

TEST(EngineThread, ClosingEndsEveryStreamOnce) {
  auto engine = open_small();
  std::vector<Request> requests = testing::mixed_requests(*engine, 6, 400);
  for (Request& request : requests)
    request.sampling.ignore_eos = true;
  EngineThread service(std::move(engine));
  std::vector<std::shared_ptr<OutputStream>> streams;
  for (const Request& request : requests)
    streams.push_back(service.stream(request));
  ASSERT_TRUE(streams[0]->next());
  service.close();
  service.close();
  for (const auto& stream : streams) {
    int finished = 0;
    while (auto output = stream->next())
      finished += output->finished ? 1 : 0;
    EXPECT_EQ(finished, 1);
  }
  const Transcripts late = read_all(*service.stream(requests[0]));
  EXPECT_EQ(late.at(requests[0].id).only().reason, FinishReason::kRefused);
  EXPECT_THROW(service.stats(), Error);
}

TEST(EngineThread, AFullCommandQueueRefusesAtOnce) {
  auto engine = open_small();
  const Request request = testing::mixed_requests(*engine, 1, 4)[0];
  EngineThread service(std::move(engine), /*max_commands=*/0);
  const Transcripts answer = read_all(*service.stream(request));
  EXPECT_EQ(answer.at(request.id).only().reason, FinishReason::kRefused);
}

}  // namespace
}  // namespace di::engine
