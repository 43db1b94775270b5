// What an engine on a device takes of its memory, against what it planned.
#include "base/error.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

/// A cache of some GB, so that pages which a device gives out whole count little.
EngineOptions roomy_options() {
  EngineOptions options = testing::small_options();
  options.context = 4096;
  options.max_num_batched_tokens = 2048;
  options.num_blocks = 40000;
  return options;
}

TEST(DeviceMemory, IsTakenAsPlanned) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "the processor's pages come when written";
  const auto engine = Engine::open(roomy_options());
  const auto planned = static_cast<double>(engine->memory_plan().total());
  const auto opened = static_cast<double>(engine->memory_taken());
  const int64_t scratch = engine->memory_plan().scratch + engine->memory_plan().logits;
  std::vector<Request> requests = testing::mixed_requests(*engine, 60, 40);
  for (const std::size_t length : {2047, 4000}) {
    Request request = requests.front();
    request.id = "long " + std::to_string(length);
    request.prompt_token_ids = testing::random_prompt(*engine, length, 5);
    request.sampling.prompt_logprobs = true;
    requests.push_back(std::move(request));
  }
  testing::run(*engine, requests);
  const auto taken = static_cast<double>(engine->memory_taken());
  std::printf(
      "planned %.1f MB (%s), taken %.1f when opened, %.1f after %zu requests; scratch %.1f MB\n",
      planned / 1e6,
      model::plan_line(engine->memory_plan()).c_str(),
      opened / 1e6,
      taken / 1e6,
      requests.size(),
      static_cast<double>(scratch) / 1e6
  );
  EXPECT_LE(taken, 1.02 * planned);
  EXPECT_GE(taken, 0.98 * planned);
  EXPECT_LE(taken - opened, 0.02 * planned) << "nothing but recordings comes in service";
}

TEST(DeviceMemory, ThatIsTooSmallIsToldWithTheOptionsToLower) {
  EngineOptions options = testing::small_options();
  options.num_blocks = int64_t{1} << 33;
  try {
    Engine::open(options);
    FAIL() << "opened";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* option :
         {"context", "max_num_seqs", "max_num_batched_tokens", "num_blocks", "scratch"})
      EXPECT_NE(message.find(option), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace di::engine
