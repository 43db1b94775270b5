// Every engine option does something: for each one there is a probe that sees its effect. An option
// without a probe fails.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/cache_size.h"
#include "engine/loaded_model.h"
#include "engine/option_table.h"
#include "engine/record.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

namespace fs = std::filesystem;
using testing::Transcripts;

std::string temporary(const std::string& name) {
  return (fs::temp_directory_path() / (name + std::to_string(getpid()))).string();
}

/// An engine with one option set as the table sets it.
std::unique_ptr<Engine> open_with(const std::string& option, const Json& value) {
  EngineOptions options = testing::small_options();
  find_option(option).set(options, value);
  return Engine::open(options);
}

Request request_of(
    const Engine& engine, const std::string& id, std::size_t prompt_tokens, int64_t max_tokens
) {
  Request request;
  request.id = id;
  request.prompt_token_ids = testing::random_prompt(engine, prompt_tokens, 1);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = max_tokens;
  return request;
}

/// The rows of the step that was planned last.
int64_t first_step_rows(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests)
    EXPECT_FALSE(engine.add(request));
  while (engine.stats().total_steps == 0)
    engine.step();
  return engine.stats().last_prefill_rows.value();
}

std::string refusal_of(const std::function<void()>& open) {
  try {
    open();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

int64_t num_tasks() {
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

void probe_model() {
  const std::string message = refusal_of([] { open_with("model", "/nowhere"); });
  EXPECT_NE(message.find("/nowhere"), std::string::npos) << message;
}

void probe_backend() {
  EXPECT_STREQ(open_with("backend", "ref")->ops().name, "ref");
}

void probe_isa() {
  if (testing::backend() != "cpu") GTEST_SKIP() << "kernels of the cpu backend";
  EXPECT_STREQ(open_with("isa", "avx2")->ops().isa, "avx2");
}

void probe_cuda_arithmetic() {
  const auto isa_with = [](const char* arithmetic) {
    return std::string(open_with("cuda_arithmetic", std::string(arithmetic))->ops().isa);
  };
  const bool on_device = testing::backend() == "cuda";
  EXPECT_EQ(isa_with("canonical") != isa_with("fast"), on_device) << "others are canonical anyway";
}

void probe_threads() {
  int64_t tasks[2] = {};
  for (const int threads : {1, 4}) {
    const auto engine = open_with("threads", threads);
    tasks[threads == 4] = num_tasks();
  }
  EXPECT_EQ(tasks[1] - tasks[0], 3);
}

void probe_context() {
  EXPECT_EQ(open_with("context", 300)->context(), 300);
}

void probe_max_num_seqs() {
  const auto engine = open_with("max_num_seqs", 3);
  for (const char* id : {"a", "b", "c", "d", "e"})
    EXPECT_FALSE(engine->add(request_of(*engine, id, 5, 20)));
  int64_t most = 0;
  while (engine->has_work()) {
    engine->step();
    most = std::max(most, engine->stats().num_running);
  }
  EXPECT_EQ(most, 3);
}

void probe_max_num_batched_tokens() {
  const auto engine = open_with("max_num_batched_tokens", 48);
  EXPECT_EQ(first_step_rows(*engine, {request_of(*engine, "a", 200, 4)}), 48);
}

void probe_chunk() {
  const auto engine = open_with("chunk", 20);
  EXPECT_EQ(
      first_step_rows(
          *engine, {request_of(*engine, "a", 200, 4), request_of(*engine, "b", 200, 4)}
      ),
      40
  );
}

void probe_num_blocks() {
  EXPECT_EQ(open_with("num_blocks", 5)->num_blocks(), 5);
}

void probe_memory_utilization() {
  EngineOptions options = testing::small_options();
  ThreadPool pool(1);
  const auto checkpoint = open_checkpoint(options.model, pool);
  const ops::OpTable& ops = select_ops(options);
  const CacheSize roomy = plan_cache(options, *checkpoint, ops, 512, int64_t{1} << 40);
  const auto blocks_at = [&](double share) {
    options.memory_utilization = share;
    return plan_cache(options, *checkpoint, ops, 512, roomy.plan.total() * 9 / 8).num_blocks;
  };
  EXPECT_LT(blocks_at(0.85), blocks_at(0.95));
}

void probe_engram_memory() {
  if (testing::backend() == "cpu") {
    EXPECT_THROW(open_with("engram_memory", std::string("device")), Error);
    return;
  }
  const auto weights_with = [](const char* place) {
    return open_with("engram_memory", std::string(place))->memory_plan().weights;
  };
  EXPECT_LT(weights_with("host"), weights_with("device"));
  EXPECT_EQ(weights_with("auto"), weights_with("device")) << "there is room";
}

void probe_async_scheduling() {
  for (const bool async : {false, true}) {
    const auto engine = open_with("async_scheduling", async);
    EXPECT_FALSE(engine->add(request_of(*engine, "a", 5, 4)));
    EXPECT_EQ(engine->step().empty(), async);
  }
}

/// The most prompt rows that a step carried beside a decode row.
int64_t most_rows_beside_decoding(double max_step_ms) {
  const auto engine = open_with("max_step_ms", max_step_ms);
  EXPECT_FALSE(engine->add(request_of(*engine, "decoding", 5, 100)));
  for (int i = 0; i < 20; ++i)
    engine->step();
  EXPECT_FALSE(engine->add(request_of(*engine, "long", 400, 1)));
  int64_t most = 0;
  while (engine->has_work()) {
    engine->step();
    const Stats stats = engine->stats();
    if (stats.last_decode_rows.value_or(0) == 0) continue;
    most = std::max(most, stats.last_prefill_rows.value_or(0));
  }
  return most;
}

void probe_max_step_ms() {
  EXPECT_EQ(most_rows_beside_decoding(0), 400);
  EXPECT_LT(most_rows_beside_decoding(0.001), 100);
}

/// Of two requests that cannot run together the one that is served first.
std::string served_first(double patience_seconds) {
  EngineOptions options = testing::small_options();
  options.max_num_seqs = 1;
  options.patience_seconds = patience_seconds;
  const auto engine = Engine::open(options);
  Request urgent = request_of(*engine, "with timeout", 40, 4);
  urgent.timeout_seconds = 3600;
  EXPECT_FALSE(engine->add(request_of(*engine, "without timeout", 40, 4)));
  EXPECT_FALSE(engine->add(urgent));
  while (true) {
    for (const Output& output : engine->step()) {
      if (output.finished) return output.request_id;
    }
  }
}

void probe_patience_seconds() {
  EXPECT_EQ(served_first(10), "without timeout");
  EXPECT_EQ(served_first(1e6), "with timeout");
}

void probe_max_queued_requests() {
  const auto engine = open_with("max_queued_requests", 1);
  EXPECT_FALSE(engine->add(request_of(*engine, "a", 5, 4)));
  const auto refusal = engine->add(request_of(*engine, "b", 5, 4));
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->message.find("max_queued_requests is 1"), std::string::npos);
}

void probe_max_queued_tokens() {
  const auto engine = open_with("max_queued_tokens", 30);
  EXPECT_FALSE(engine->add(request_of(*engine, "a", 20, 4)));
  const auto refusal = engine->add(request_of(*engine, "b", 20, 4));
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->message.find("max_queued_tokens is 30"), std::string::npos);
}

void probe_replay() {
  const auto engine = open_with("replay", "compact");
  Request request = request_of(*engine, "a", 20, 4);
  request.sampling.prompt_logprobs = true;
  const auto refusal = engine->add(request);
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->message.find("compact"), std::string::npos) << refusal->message;
}

void probe_replay_keep() {
  EngineOptions options = testing::small_options();
  options.replay = "mask";
  options.replay_keep = 1;
  const std::string message = refusal_of([&] { Engine::open(options); });
  EXPECT_NE(message.find("replay_keep is 1"), std::string::npos) << message;
}

std::vector<int32_t> drawn_with_seed(const Json& seed) {
  const auto engine = open_with("seed", seed);
  Request request = request_of(*engine, "a", 10, 24);
  request.sampling.temperature = 1;
  return testing::run(*engine, {request}).at("a").only().ids();
}

void probe_seed() {
  EXPECT_EQ(drawn_with_seed(5), drawn_with_seed(5));
  EXPECT_NE(drawn_with_seed(5), drawn_with_seed(6));
}

void probe_peak_flops() {
  const auto engine = open_with("peak_flops", 1e12);
  testing::run(*engine, {request_of(*engine, "a", 10, 4)});
  EXPECT_GT(engine->stats().flops_utilization.value_or(0), 0);
}

/// The text of a trace of one request.
std::string traced(Engine& engine) {
  const std::string path = temporary("deepinfer_trace_");
  engine.trace(path, 3);
  testing::run(engine, {request_of(engine, "a", 10, 8)});
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  fs::remove(path);
  return text;
}

void probe_check_integrity() {
  for (const bool check : {false, true}) {
    const auto engine = open_with("check_integrity", check);
    EXPECT_EQ(traced(*engine).find("check_integrity") != std::string::npos, check);
  }
}

void probe_banned_tokens() {
  const auto free = Engine::open(testing::small_options());
  const Request request = request_of(*free, "a", 10, 12);
  const int32_t first = testing::run(*free, {request}).at("a").only().ids()[0];
  const auto engine = open_with("banned_tokens", "0..1," + std::to_string(first));
  for (const int32_t id : testing::run(*engine, {request}).at("a").only().ids())
    EXPECT_NE(id, first);
  for (const char* wrong : {"x", "5..3", "-1", "1,,2", "99999999", "1.."}) {
    const std::string message = refusal_of([&] { open_with("banned_tokens", wrong); });
    EXPECT_NE(message.find("banned_tokens"), std::string::npos) << wrong;
  }
}

Record recorded(bool content) {
  const std::string path = temporary("deepinfer_record_");
  {
    EngineOptions options = testing::small_options();
    options.record = path;
    options.record_content = content;
    const auto engine = Engine::open(options);
    testing::run(*engine, {request_of(*engine, "a", 10, 4)});
  }
  Record record = read_record(path);
  fs::remove(path);
  return record;
}

void probe_record() {
  const Record record = recorded(false);
  ASSERT_EQ(record.requests.size(), 1);
  EXPECT_EQ(record.requests[0].request.id, "a");
  EXPECT_TRUE(record.requests[0].request.prompt_token_ids.empty());
}

void probe_record_content() {
  const Record record = recorded(true);
  EXPECT_EQ(record.requests.at(0).request.prompt_token_ids.size(), 10);
  EXPECT_EQ(record.requests.at(0).choices.at(0).tokens.size(), 4);
}

void probe_drafts() {
  const auto engine = open_with("drafts", "3");
  EXPECT_GT(engine->memory_plan().weights, open_with("drafts", "off")->memory_plan().weights);
  testing::run(*engine, {request_of(*engine, "a", 10, 20)});
  EXPECT_EQ(engine->stats().draft_acceptance_by_position.size(), 3);
}

/// The tokens of a request that brings no seed, at a temperature.
std::vector<int32_t> unseeded_tokens(const std::string& drafts, const std::string& verification) {
  EngineOptions options = testing::small_options();
  options.drafts = drafts;
  options.verification = verification;
  const auto engine = Engine::open(options);
  Request request = request_of(*engine, "a", 10, 40);
  request.sampling.temperature = 1;
  return testing::run(*engine, {request}).at("a").only().ids();
}

void probe_verification() {
  const std::vector<int32_t> plain = unseeded_tokens("off", "auto");
  EXPECT_EQ(unseeded_tokens("5", "exact_seed"), plain);
  EXPECT_NE(unseeded_tokens("5", "block"), plain);
  EXPECT_NE(unseeded_tokens("5", "auto"), plain);
}

void probe_draft_costs() {
  const std::string folder = temporary("draft_costs");
  EngineOptions options = testing::small_options();
  options.drafts = "adaptive";
  options.draft_costs = folder;
  { const auto engine = Engine::open(options); }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  fs::remove_all(folder);
}

using Probe = void (*)();

const std::map<std::string, Probe> kProbes = {
    {"model", probe_model},
    {"backend", probe_backend},
    {"isa", probe_isa},
    {"cuda_arithmetic", probe_cuda_arithmetic},
    {"threads", probe_threads},
    {"context", probe_context},
    {"max_num_seqs", probe_max_num_seqs},
    {"max_num_batched_tokens", probe_max_num_batched_tokens},
    {"chunk", probe_chunk},
    {"num_blocks", probe_num_blocks},
    {"memory_utilization", probe_memory_utilization},
    {"engram_memory", probe_engram_memory},
    {"async_scheduling", probe_async_scheduling},
    {"max_step_ms", probe_max_step_ms},
    {"patience_seconds", probe_patience_seconds},
    {"max_queued_requests", probe_max_queued_requests},
    {"max_queued_tokens", probe_max_queued_tokens},
    {"drafts", probe_drafts},
    {"verification", probe_verification},
    {"draft_costs", probe_draft_costs},
    {"replay", probe_replay},
    {"replay_keep", probe_replay_keep},
    {"seed", probe_seed},
    {"peak_flops", probe_peak_flops},
    {"check_integrity", probe_check_integrity},
    {"banned_tokens", probe_banned_tokens},
    {"record", probe_record},
    {"record_content", probe_record_content},
};

class OptionEffect : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(
    Of,
    OptionEffect,
    ::testing::ValuesIn([] {
      std::vector<std::string> names;
      for (const OptionInfo& option : option_table())
        names.push_back(option.name);
      return names;
    }()),
    [](const ::testing::TestParamInfo<std::string>& option) { return option.param; }
);

TEST_P(OptionEffect, IsSeen) {
  const auto probe = kProbes.find(GetParam());
  ASSERT_NE(probe, kProbes.end()) << "no test observes the effect of " << GetParam();
  probe->second();
}

}  // namespace
}  // namespace di::engine
