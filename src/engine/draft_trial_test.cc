// Trials of drafts: they go along the texts that an engine writes, and a course does not notice the
// others.
#include "engine/draft_trial.h"

#include <numeric>
#include <stdexcept>

#include "base/math.h"
#include "cache/layout.h"
#include "engine/loaded_model.h"
#include "engine/testing.h"

namespace di::engine {
namespace {

using Blocks = std::vector<sched::JudgedText>;

/// The default model with its drafter.
class DraftTrial : public ::testing::Test {
 protected:
  static constexpr int64_t kContext = 256;

  DraftTrial()
      : ops_(select_ops(testing::backend(), "auto")),
        loaded_(load(open_checkpoint(DI_SEEDLING, pool_), ops_, pool_, {}, {.drafts = true})) {}

  Blocks run(
      const std::vector<DraftCourse>& courses,
      DraftTrialOptions options,
      const DraftTrialProgress& progress = {}
  ) {
    options.context = kContext;
    cache::KvCache cache(
        cache::make_layout(loaded_.model.config),
        options.num_sequences * ceil_div(kContext, cache::kBlockTokens),
        options.num_sequences,
        ops_.memory()
    );
    ops::OwnedExec exec(pool_, ops_.memory());
    return run_draft_trials({loaded_.model, cache, ops_, *exec}, courses, options, progress);
  }

  ThreadPool pool_{1};
  const ops::OpTable& ops_;
  LoadedModel loaded_;
};

/// Requests of all kinds with the texts that an engine without drafts gives them.
struct Answered {
  std::vector<DraftCourse> own;   // the target is to write
  std::vector<DraftCourse> text;  // what the engine wrote
};

Answered answer_requests(int64_t count, int64_t max_tokens) {
  const auto engine = Engine::open(testing::small_options());
  const std::vector<Request> requests = testing::mixed_requests(*engine, count, max_tokens);
  const testing::Transcripts transcripts = testing::run(*engine, requests);
  Answered answered;
  for (const Request& request : requests) {
    DraftCourse course{
        .prompt = request.prompt_token_ids,
        .sampling = request.sampling,
        .seed = *request.sampling.seed};
    answered.own.push_back(course);
    course.text = transcripts.at(request.id).choices.at(0).ids();
    answered.text.push_back(course);
  }
  return answered;
}

TEST_F(DraftTrial, TheTargetWritesWhatAnEngineWrites) {
  const Answered answered = answer_requests(12, 16);
  const DraftTrialOptions options{.length = 5, .num_sequences = 6, .chunk = 64};
  const Blocks own = run(answered.own, options);
  const Blocks text = run(answered.text, options);
  int64_t blocks = 0, accepted = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    // Another draw of the target would begin a block of its own behind it.
    EXPECT_EQ(own[i], text[i]) << "course " << i;
    blocks += std::ssize(own[i]);
    for (const sched::JudgedBlock& block : own[i])
      accepted += block.accepted;
  }
  EXPECT_GT(blocks, 40);
  EXPECT_GT(accepted, 5);
}

TEST_F(DraftTrial, ACourseDoesNotNoticeOthersOrChunks) {
  const Answered answered = answer_requests(6, 10);
  const Blocks alone = run(answered.own, {.length = 3, .num_sequences = 1, .chunk = 7});
  EXPECT_EQ(run(answered.own, {.length = 3, .num_sequences = 4, .chunk = 64}), alone);
  EXPECT_EQ(run(answered.own, {.length = 3, .num_sequences = 6, .chunk = 1}), alone);
}

TEST_F(DraftTrial, ATextThatTheTargetWouldNotWriteIsFollowedTokenByToken) {
  DraftCourse course{.prompt = {0, 848, 347}};
  course.sampling.temperature = 0;
  for (int32_t i = 0; i < 40; ++i)
    course.text.push_back(3000 - 61 * i);
  const Blocks blocks = run({course}, {.length = 5, .chunk = 64});
  EXPECT_EQ(blocks.at(0).size(), course.text.size() - 1) << "an anchor each but the last";
  for (const sched::JudgedBlock& block : blocks.at(0))
    EXPECT_LE(block.accepted, std::ssize(block.confidence));
}

TEST_F(DraftTrial, NothingIsJudgedBehindAnAcceptedEndToken) {
  DraftCourse greeting;
  const text::Tokenizer& tokenizer = *loaded_.tokenizer;
  greeting.prompt = tokenizer.encode(
      "<｜begin▁of▁sentence｜><｜User｜>What is 7 + 5?<｜Assistant｜></think>",
      text::AddedTokens::kRecognised
  );
  greeting.sampling.temperature = 0;
  greeting.sampling.max_tokens = 40;
  const Blocks blocks = run({greeting}, {.length = 5, .chunk = 64});
  const sched::JudgedBlock& last = blocks.at(0).back();
  EXPECT_LT(last.confidence.size(), 5u) << "the end token was drafted";
  EXPECT_EQ(last.accepted, std::ssize(last.confidence));
  for (std::size_t i = 0; i + 1 < blocks.at(0).size(); ++i)
    EXPECT_EQ(blocks.at(0)[i].confidence.size(), 5u);
}

TEST_F(DraftTrial, EndsWithItsContextAndTellsProgress) {
  DraftCourse course{.prompt = std::vector<int32_t>(kContext - 12, 500)};
  course.sampling.ignore_eos = true;
  course.sampling.max_tokens = 1000;
  std::vector<int64_t> told;
  const Blocks blocks =
      run({course, course},
          {.length = 5, .num_sequences = 2, .chunk = 64},
          [&](int64_t done, int64_t total) {
            EXPECT_EQ(total, 2000);
            told.push_back(done);
          });
  EXPECT_GE(blocks.at(0).size(), 2u);
  EXPECT_LE(blocks.at(0).size(), 7u);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 2000);
}

TEST_F(DraftTrial, RefusesWhatItCannotRun) {
  const DraftTrialOptions options{.length = 5, .chunk = 64};
  EXPECT_THROW(run({{.prompt = {}}}, options), Error);
  EXPECT_THROW(run({{.prompt = std::vector<int32_t>(kContext - 5, 1)}}, options), Error);
  EXPECT_THROW(run({{.prompt = {0, 1 << 20}}}, options), Error);
  EXPECT_THROW(run({{.prompt = {0}, .text = {3, -1}}}, options), Error);
  DraftCourse cold{.prompt = {0}};
  cold.sampling.temperature = -1;
  EXPECT_THROW(run({cold}, options), Error);
  const auto stop = [](int64_t, int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(run({{.prompt = {0, 848}}}, options, stop), std::runtime_error);
}

}  // namespace
}  // namespace di::engine
