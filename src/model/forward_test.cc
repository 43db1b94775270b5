// Properties of the forward pass over random ragged batches, on every backend: a row depends on its
// own sequence alone, bit for bit.
#include <gtest/gtest.h>

#include "model/testing.h"

namespace di::model {
namespace {

using testing::Backend;
using testing::backends;
using testing::Lane;
using testing::random_timeline;
using testing::Rig;
using testing::run_alone;
using testing::run_ragged;
using testing::TestModel;
using testing::Timeline;
using testing::Trace;

const std::string kTiny = DI_TESTDATA "/model/tiny";
const std::string kSeedling = DI_SEEDLING;

std::vector<Timeline> random_timelines(
    std::mt19937& random, const ModelConfig& config, std::size_t count, int64_t longest
) {
  std::vector<Timeline> timelines;
  while (timelines.size() < count) {
    const int64_t length = 1 + static_cast<int64_t>(random()) % longest;
    timelines.push_back(random_timeline(random, config, length));
  }
  return timelines;
}

std::vector<Lane> lanes_of(const std::vector<Timeline>& timelines, Rig& rig) {
  std::vector<Lane> lanes;
  lanes.reserve(timelines.size());
  for (const Timeline& timeline : timelines)
    lanes.emplace_back(timeline, rig.cache());
  return lanes;
}

class ForwardTest : public ::testing::TestWithParam<Backend> {
 protected:
  /// The oracle is slow; the fast backends take more seeds.
  unsigned seeds() const { return GetParam().name == "ref" ? 2 : 6; }

  const TestModel tiny_{kTiny, *GetParam().ops};
};

TEST_P(ForwardTest, RowsOfRaggedBatchesEqualEachSequenceAlone) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto timelines = random_timelines(random, tiny_.config(), 2 + seed % 4, 130);
    Rig rig(tiny_, 1 + static_cast<int>(seed % 3));
    rig.scatter(random);
    std::vector<Lane> lanes = lanes_of(timelines, rig);
    run_ragged(rig, lanes, random);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Trace together{lanes[i].logits, rig.cache_bytes(lanes[i])};
      EXPECT_TRUE(together == run_alone(tiny_, timelines[i])) << "sequence " << i;
    }
  }
}

TEST_P(ForwardTest, ThreadsDoNotChangeABit) {
  std::mt19937 random(11);
  const Timeline timeline = random_timeline(random, tiny_.config(), 150);
  const Trace one = run_alone(tiny_, timeline, 1);
  EXPECT_TRUE(one == run_alone(tiny_, timeline, 2));
  EXPECT_TRUE(one == run_alone(tiny_, timeline, 3));
}

// What speculative decoding does: a few rows are computed, some of their tokens are rejected, and
// other tokens take their positions. Nothing was copied back, and nothing may be left.
TEST_P(ForwardTest, RejectedRowsLeaveNoTrace) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(100 + seed);
    const int64_t length = 60 + static_cast<int64_t>(random() % 40);
    const Timeline truth = random_timeline(random, tiny_.config(), length);
    const int64_t prompt = 1 + static_cast<int64_t>(random() % 50);
    Rig rig(tiny_, 1);
    Lane lane(truth, rig.cache());
    rig.step({{&lane, prompt}});
    while (lane.left() > 0) {
      const int64_t rows = std::min(lane.left(), cache::kRollbackTokens);
      const int64_t accepted = static_cast<int64_t>(random()) % (rows + 1);
      const int64_t start = lane.fed;
      for (int64_t i = accepted; i < rows; ++i) {  // drafts that will turn out wrong
        const auto at = static_cast<std::size_t>(start + i);
        lane.timeline.tokens[at] =
            static_cast<int32_t>(random() % static_cast<uint64_t>(tiny_.config().vocab_size));
      }
      rig.step({{&lane, rows}});
      lane.fed = start + accepted;
      lane.timeline.tokens = truth.tokens;
      lane.logits.resize(static_cast<std::size_t>(lane.fed * tiny_.config().vocab_size));
      if (lane.left() > 0 && random() % 2 == 0) rig.step({{&lane, 1}});
    }
    const Trace found{lane.logits, rig.cache_bytes(lane)};
    EXPECT_TRUE(found == run_alone(tiny_, truth));
  }
}

TEST_P(ForwardTest, CompactReplayEqualsItsMask) {
  for (unsigned seed = 0; seed < seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(200 + seed);
    auto timelines = random_timelines(random, tiny_.config(), 3, 120);
    for (Timeline& timeline : timelines) {  // the last tokens are decoded
      const int64_t length = std::ssize(timeline.tokens);
      timeline.prompt_length = std::max<int64_t>(1, length - static_cast<int64_t>(random() % 8));
    }
    const int64_t keep = 1 + static_cast<int64_t>(random() % 60);
    std::vector<std::vector<Trace>> traces;
    for (const auto mode : {Replay::Mode::kMask, Replay::Mode::kCompact}) {
      Rig rig(tiny_, 2, {mode, keep});
      std::vector<Lane> lanes = lanes_of(timelines, rig);
      run_ragged(rig, lanes, random);
      std::vector<Trace>& of_mode = traces.emplace_back();
      for (const Lane& lane : lanes)
        of_mode.push_back({lane.logits, rig.cache_bytes(lane)});
    }
    EXPECT_TRUE(traces[0] == traces[1]) << "keep " << keep;
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryBackend,
    ForwardTest,
    ::testing::ValuesIn(testing::backends_and_devices()),
    [](const ::testing::TestParamInfo<Backend>& backend) { return backend.param.name; }
);

TEST(Forward, EveryBackendGivesTheBitsOfRefOnTheDefaultModel) {
  const TestModel ref(kSeedling, ops::ref_ops());
  std::mt19937 random(300);
  const auto timelines = random_timelines(random, ref.config(), 3, 300);
  std::vector<Trace> expected;
  for (const Timeline& timeline : timelines)
    expected.push_back(run_alone(ref, timeline));
  for (const Backend& backend : backends()) {
    if (backend.name == "ref") continue;
    SCOPED_TRACE(backend.name);
    const TestModel model(kSeedling, *backend.ops);
    Rig rig(model, 2);
    std::vector<Lane> lanes = lanes_of(timelines, rig);
    run_ragged(rig, lanes, random);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Trace found{lanes[i].logits, rig.cache_bytes(lanes[i])};
      EXPECT_TRUE(found == expected[i]) << "sequence " << i;
    }
  }
}

}  // namespace
}  // namespace di::model
