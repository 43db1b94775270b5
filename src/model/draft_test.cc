// Properties of drafts, on every backend: they depend on their own sequence alone, bit for bit, and
// leave nothing behind.
#include "model/draft.h"

#include <gtest/gtest.h>

#include "model/memory_plan.h"
#include "model/testing.h"

namespace di::model {
namespace {

using testing::Backend;
using testing::Lane;
using testing::random_timeline;
using testing::Rig;
using testing::run_ragged;
using testing::TestModel;
using testing::Timeline;

const std::string kTiny = DI_TESTDATA "/model/tiny";
const std::string kSeedling = DI_SEEDLING;

class DraftTest : public ::testing::TestWithParam<Backend> {
 protected:
  /// The oracle is slow; the fast backends take more seeds.
  unsigned seeds() const { return GetParam().name == "ref" ? 1 : 3; }
  int64_t block() const { return tiny_.config().draft.dspark_block_size; }

  /// A timeline of text with one token more than is fed: the anchor.
  Timeline text(std::mt19937& random, int64_t length) const {
    Timeline timeline = random_timeline(random, tiny_.config(), length + 1);
    timeline.is_image.assign(timeline.is_image.size(), 0);
    timeline.prompt_length = length;
    return timeline;
  }

  /// The drafts behind a prompt that was fed in one piece, alone.
  Drafts draft_alone(const Timeline& timeline, int64_t length, int num_threads = 1) const {
    Rig rig(tiny_, num_threads);
    Lane lane(timeline, rig.cache());
    rig.step({{&lane, timeline.prompt_length}});
    return rig.draft({&lane}, length).front();
  }

  const TestModel tiny_{kTiny, *GetParam().ops};
};

TEST_P(DraftTest, SequencesOfABatchDraftWhatTheyDraftAlone) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Rig rig(tiny_, 1 + static_cast<int>(seed));
    rig.scatter(random);
    std::vector<Timeline> timelines;
    std::vector<Lane> lanes;
    lanes.reserve(4);
    for (const int64_t length : {1, 20, 33, 90}) {
      timelines.push_back(text(random, length));
      Timeline prompt = timelines.back();
      prompt.tokens.pop_back();
      lanes.emplace_back(prompt, rig.cache());
    }
    run_ragged(rig, lanes, random);
    std::vector<Lane*> order;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i].timeline.tokens = timelines[i].tokens;
      order.push_back(&lanes[i]);
    }
    const int64_t length = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(block()));
    const std::vector<Drafts> together = rig.draft(order, length);
    for (std::size_t i = 0; i < lanes.size(); ++i)
      EXPECT_EQ(together[i], draft_alone(timelines[i], length)) << "sequence " << i;
  }
}

TEST_P(DraftTest, ThreadsDoNotChangeABit) {
  std::mt19937 random(10);
  const Timeline timeline = text(random, 70);
  const Drafts one = draft_alone(timeline, block(), 1);
  EXPECT_EQ(one, draft_alone(timeline, block(), 2));
  EXPECT_EQ(one, draft_alone(timeline, block(), 3));
}

// Rows of drafts that will be rejected write their keys into the rings of the draft stages, too.
TEST_P(DraftTest, RejectedRowsAndDraftsLeaveNoTrace) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(20 + seed);
    Timeline truth = text(random, 75);
    Rig rig(tiny_, 1);
    Lane lane(truth, rig.cache());
    rig.step({{&lane, 1 + static_cast<int64_t>(random() % 40)}});
    while (lane.left() > 1) {
      const int64_t rows = std::min(lane.left() - 1, block() + 1);
      const int64_t accepted = static_cast<int64_t>(random()) % rows;
      const int64_t start = lane.fed;
      rig.draft({&lane}, block());
      for (int64_t i = accepted + 1; i < rows; ++i) {
        lane.timeline.tokens[static_cast<std::size_t>(start + i)] =
            static_cast<int32_t>(random() % static_cast<uint64_t>(tiny_.config().vocab_size));
      }
      rig.step({{&lane, rows}});
      lane.fed = start + accepted + 1;
      lane.timeline.tokens = truth.tokens;
      Timeline so_far = truth;
      so_far.prompt_length = lane.fed;
      EXPECT_EQ(rig.draft({&lane}, block()).front(), draft_alone(so_far, block()))
          << "at position " << lane.fed;
    }
  }
}

// The best tokens are those of the logits; what a chooser puts in their place conditions the rest.
class ThirdToken : public DraftChooser {
 public:
  void choose(
      ops::Exec& exec, int64_t, const View<const float, 2>& logits, const View<int32_t, 1>& tokens
  ) override {
    for (const int32_t token : ops::fetch(exec, tokens))
      best.push_back(token);
    const std::vector<int32_t> third(static_cast<std::size_t>(logits.dim(0)), 3);
    const Memory& memory = exec.scratch.memory();
    memory.copy(tokens.data, third.data(), std::ssize(third) * 4, exec.stream);
    memory.wait(exec.stream);
  }

  std::vector<int32_t> best;
};

TEST_P(DraftTest, ChosenTokensConditionTheOnesBehindThem) {
  std::mt19937 random(30);
  const Timeline timeline = text(random, 40);
  ThreadPool pool(1);
  ops::OwnedExec exec(pool, tiny_.ops().memory());
  cache::KvCache cache(cache::make_layout(tiny_.config()), 1, 1, tiny_.ops().memory());
  const cache::SequenceState state = [&] {
    cache::SequenceState taken(cache);
    taken.reserve_tokens(41);
    return taken;
  }();
  const Arena::Scope scope(exec->scratch);
  const View<const int32_t, 1> tokens = ops::place(*exec, timeline.tokens);
  Step prompt;
  prompt.sequences.push_back(
      {.tokens = {tokens.data, 40},
       .slot = state.slot(),
       .block_table = ops::place(*exec, state.block_table()).data}
  );
  forward(tiny_.model(), prompt, cache, tiny_.ops(), *exec, {.draft_context = true});
  const DraftStep step{
      .sequences = {{.tokens = {tokens.data, 41}, .slot = state.slot()}},
      .anchors = View<const int32_t, 1>(tokens.data + 40, 1),
      .length = block()};
  ThirdToken chooser;
  const auto logits_of = [&](DraftChooser* with) {
    return ops::fetch(
        *exec, draft(tiny_.model(), step, cache, tiny_.ops(), *exec, {}, with).logits
    );
  };
  const std::vector<float> free = logits_of(nullptr);
  const std::vector<float> chosen = logits_of(&chooser);
  const auto vocab = static_cast<std::ptrdiff_t>(tiny_.config().vocab_size);
  EXPECT_TRUE(std::equal(free.begin(), free.begin() + vocab, chosen.begin()));
  EXPECT_FALSE(std::equal(free.begin() + vocab, free.end(), chosen.begin() + vocab));
  for (std::ptrdiff_t i = 0; i < block(); ++i) {
    const auto row = chosen.begin() + i * vocab;
    const auto best = std::max_element(row, row + vocab) - row;
    EXPECT_EQ(chooser.best[static_cast<std::size_t>(i)], best);
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryBackend,
    DraftTest,
    ::testing::ValuesIn(testing::backends_and_devices()),
    [](const ::testing::TestParamInfo<Backend>& backend) { return backend.param.name; }
);

TEST(Draft, CompactReplayDraftsLikeItsMask) {
  const TestModel tiny(kTiny, ops::cpu_ops(Isa::kAvx2));
  std::mt19937 random(40);
  Timeline timeline = random_timeline(random, tiny.config(), 91);
  timeline.prompt_length = 90;
  std::vector<Drafts> drafts;
  for (const auto mode : {Replay::Mode::kMask, Replay::Mode::kCompact}) {
    Rig rig(tiny, 2, {mode, /*keep=*/20});
    Lane lane(timeline, rig.cache());
    for (const int64_t count : {40, 35, 15})
      rig.step({{&lane, count}});
    drafts.push_back(rig.draft({&lane}, 5).front());
  }
  EXPECT_EQ(drafts[0], drafts[1]);
}

TEST(Draft, EveryBackendGivesTheBitsOfRefOnTheDefaultModel) {
  std::vector<Drafts> drafts;
  for (const Backend& backend : testing::backends()) {
    SCOPED_TRACE(backend.name);
    const TestModel model(kSeedling, *backend.ops);
    std::mt19937 random(50);
    Timeline timeline = random_timeline(random, model.config(), 61);
    Rig rig(model, 2);
    Lane lane(timeline, rig.cache());
    rig.step({{&lane, 60}});
    drafts.push_back(rig.draft({&lane}, model.config().draft.dspark_block_size).front());
    EXPECT_EQ(drafts.back(), drafts.front());
  }
}

TEST(Draft, ThePlanCountsTheDrafter) {
  ThreadPool pool(1);
  for (const std::string& folder : {kTiny, kSeedling}) {
    SCOPED_TRACE(folder);
    const auto checkpoint = checkpoint::Checkpoint::open(folder, pool);
    const int64_t block = checkpoint.config().draft.dspark_block_size;
    const MemoryLimits without{.context = 128, .num_sequences = 1, .chunk = 64};
    MemoryLimits with = without;
    with.num_drafts = block;
    const MemoryPlan plain = plan_memory(checkpoint, ops::ref_ops(), without);
    const MemoryPlan plan = plan_memory(checkpoint, ops::cpu_ops(Isa::kAvx2), with);
    EXPECT_GT(plan.weights, plan_memory(checkpoint, ops::cpu_ops(Isa::kAvx2), without).weights);
    EXPECT_EQ(plan.logits, (1 + block) * plain.logits);
    EXPECT_GT(plan.scratch, plain.scratch);
  }
}

TEST(Draft, WhatCannotBeDraftedIsRefused) {
  const TestModel tiny(kTiny, ops::ref_ops());
  std::mt19937 random(60);
  const Timeline timeline = random_timeline(random, tiny.config(), 4);
  Rig rig(tiny, 1);
  Lane lane(timeline, rig.cache());
  rig.step({{&lane, 3}});
  EXPECT_THROW(rig.draft({&lane}, 0), Error);
  EXPECT_THROW(rig.draft({&lane}, cache::kRollbackTokens), Error);
}

}  // namespace
}  // namespace di::model
