// What an engine on a device takes of its memory, against what it planned; and that what it does
// there in its own way is what the processor does.
#include <atomic>
#include <cstdio>

#include "base/error.h"
#include "engine/make_device.h"
#include "engine/model_device.h"
#include "engine/testing.h"

#if DI_HAS_CUDA
#include "ops/cuda/waits.h"
#endif

namespace di::engine {
namespace {

/// A cache of some GB, so that pages which a device gives out whole count little.
EngineOptions roomy_options() {
  EngineOptions options = testing::small_options();
  options.context = 4096;
  options.max_num_batched_tokens = 2048;
  options.num_blocks = 120000;
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

TEST(DeviceMemory, GivesTheSameBitsWhereverTheTablesOfEngramLie) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "the processor reads them in place";
  const auto texts_with = [](const char* place) {
    EngineOptions options = testing::small_options();
    options.engram_memory = place;
    const auto engine = Engine::open(options);
    return testing::run(*engine, testing::mixed_requests(*engine, 30, 20));
  };
  const testing::Transcripts on_device = texts_with("device");
  for (const auto& [id, transcript] : texts_with("host"))
    testing::expect_same(transcript, on_device.at(id), id);
}

TEST(DeviceDraws, OfBlocksAreThoseOfTheProcessorsSampler) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "the processor draws by itself";
  EngineOptions options = testing::small_options();
  options.drafts = "5";
  options.verification = "block";
  const auto texts_of = [&](const MakeDevice& make) {
    const auto engine = Engine::open(options, {}, make);
    const auto texts = testing::run(*engine, testing::mixed_requests(*engine, 40, 40));
    EXPECT_GT(engine->stats().drafts_accepted, 100);
    return texts;
  };
  const testing::Transcripts on_device = texts_of({});
  const testing::Transcripts expected =
      texts_of([](const DeviceParts& parts) { return std::make_unique<ModelDevice>(parts); });
  for (const auto& [id, transcript] : expected)
    testing::expect_same(transcript, on_device.at(id), id);
}

/// Tokens, texts and ends; logprobs to the last bit, which is the device's own.
void expect_same_text(
    const testing::Transcript& found, const testing::Transcript& expected, const std::string& what
) {
  ASSERT_EQ(found.choices.size(), expected.choices.size()) << what;
  for (const auto& [index, choice] : expected.choices) {
    const testing::Transcript::Choice& other = found.choices.at(index);
    ASSERT_EQ(other.ids(), choice.ids()) << what;
    EXPECT_EQ(other.text, choice.text) << what;
    EXPECT_EQ(other.reason, choice.reason) << what;
    for (std::size_t i = 0; i < choice.tokens.size(); ++i)
      EXPECT_FLOAT_EQ(other.tokens[i].logprob, choice.tokens[i].logprob) << what << ", token " << i;
  }
}

TEST(CanonicalArithmetic, GivesTheTextsOfTheProcessor) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "this compares a device with the processor";
  const auto texts_of = [](const char* backend, const char* drafts) {
    EngineOptions options = testing::small_options();
    options.backend = backend;
    options.cuda_arithmetic = "canonical";
    options.drafts = drafts;
    options.verification = "exact_seed";
    const auto engine = Engine::open(options);
    return testing::run(*engine, testing::mixed_requests(*engine, 40, 40));
  };
  const testing::Transcripts expected = texts_of("cpu", "off");
  for (const char* drafts : {"off", "5"}) {
    const testing::Transcripts found = texts_of("cuda", drafts);
    for (const auto& [id, transcript] : expected)
      expect_same_text(found.at(id), transcript, id + ", drafts " + drafts);
  }
}

#if DI_HAS_CUDA
/// Adds up what the launches of a device waited.
class WatchedDevice final : public Device {
 public:
  WatchedDevice(std::unique_ptr<Device> device, std::atomic<int64_t>& waits)
      : device_(std::move(device)), waits_(waits) {}

  void launch(StepInputs inputs) override { device_->launch(std::move(inputs)); }
  bool takes_another() const override { return device_->takes_another(); }
  bool done() const override { return device_->done(); }
  StepResult collect() override {
    StepResult result = device_->collect();
    waits_ += result.launch_waits;
    return result;
  }

 private:
  std::unique_ptr<Device> device_;
  std::atomic<int64_t>& waits_;
};

TEST(DeviceWaits, AreNoneInTheLaunchesOfSizesThatCameBefore) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "nothing waits for the processor";
  std::atomic<int64_t> waits{0};
  const auto engine =
      Engine::open(testing::small_options(), {}, [&waits](const DeviceParts& parts) {
        return std::make_unique<WatchedDevice>(make_device(parts), waits);
      });
  const auto requests = testing::mixed_requests(*engine, 40, 30);
  ops::cuda::watch_copies(true);
  testing::run(*engine, requests);
  const int64_t at_first = waits.exchange(0);
  testing::run(*engine, requests);
  ops::cuda::watch_copies(false);
  std::printf("launches waited %ld times at first\n", static_cast<long>(at_first));
  EXPECT_EQ(waits.load(), 0);
}
#endif

TEST(DeviceMemory, CountsExpertsAsTheProcessorDoes) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "this compares a device with the processor";
  const auto imbalance_of = [](const char* backend) {
    EngineOptions options = testing::small_options();
    options.backend = backend;
    const auto engine = Engine::open(options);
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 9; ++i) {  // of one more row when they are recorded
      Request request;
      request.id = std::to_string(i);
      request.prompt_token_ids = testing::random_prompt(*engine, 20, i);
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = 12;
      requests.push_back(std::move(request));
    }
    testing::run(*engine, requests);
    return engine->stats().expert_imbalance.value();
  };
  const double expected = imbalance_of("cpu");
  EXPECT_NEAR(imbalance_of("cuda"), expected, 0.02 * expected);
}

}  // namespace
}  // namespace di::engine
