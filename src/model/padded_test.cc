// Steps and drafts that are filled up to a recorded size: what they yield and leave behind is what
// it is without. On a device each size is recorded once and played with other contents from then
// on.
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "model/testing.h"

#if DI_HAS_CUDA
#include "ops/cuda/graph.h"
#endif

namespace di::model {
namespace {

using testing::Backend;
using testing::Lane;
using testing::Piece;
using testing::random_timeline;
using testing::Rig;
using testing::run_alone;
using testing::run_ragged;
using testing::TestModel;
using testing::Timeline;
using testing::Trace;

const std::string kTiny = DI_TESTDATA "/model/tiny";
const std::string kSeedling = DI_SEEDLING;

/// What is enqueued the first time that a size comes, recorded the second time, and played later.
template <class Output>
class Recording {
 public:
  Output run([[maybe_unused]] ops::Exec& exec, const std::function<Output()>& enqueue) {
#if DI_HAS_CUDA
    if (!exec.scratch.memory().is_host()) {
      if (times_++ == 0) return enqueue();
      if (!graph_) graph_ = ops::cuda::Graph::record(exec.stream, [&] { output_ = enqueue(); });
      graph_->play(exec.stream);
      return output_;
    }
#endif
    return enqueue();
  }

#if DI_HAS_CUDA
 private:
  Output output_;
  int64_t times_ = 0;
  std::optional<ops::cuda::Graph> graph_;
#endif
};

/// Rows of a sequence at most: an anchor and its drafts.
constexpr int64_t kMostRows = cache::kRollbackTokens;

/// A rig whose steps and drafts are filled up, once it is told so, to multiples of some numbers.
class PaddedRig : public Rig {
 public:
  PaddedRig(const TestModel& model, int num_threads) : Rig(model, num_threads) {
    if (!exec_->scratch.memory().is_host()) exec_->scratch.reserve(kScratch);
  }

  void pad(int64_t rows, int64_t sequences) { multiple_ = {.rows = rows, .sequences = sequences}; }

 protected:
  StepOutput pass(const Step& step) override {
    if (multiple_.rows == 0) return Rig::pass(step);
    int64_t rows = 0;
    for (const SequenceInput& input : step.sequences)
      rows += input.num_rows();
    const RowSetSize size{
        align_up(rows, multiple_.rows), sequences_of(std::ssize(step.sequences)), kMostRows, 256};
    const PlacedStep placed(
        model_.model(),
        step,
        {.padded_rows = size.rows,
         .padded_sequences = size.sequences,
         .most_rows = size.most_rows,
         .max_length = size.max_length},
        *exec_
    );
    const StepOutput output = steps_[{size.rows, size.sequences}].run(*exec_, [&] {
      return run_placed(model_.model(), placed, cache_, model_.ops(), *exec_, options_);
    });
    for (const uint8_t finite : ops::fetch(*exec_, output.finite))
      EXPECT_EQ(finite, 1);
    return output;
  }

  DraftOutput draft_pass(const DraftStep& step) override {
    if (multiple_.rows == 0) return Rig::draft_pass(step);
    const auto own = std::ssize(step.sequences);
    const int64_t count = sequences_of(own);
    const auto anchors = exec_->scratch.array<int32_t>(count);
    const std::vector<int32_t> any(static_cast<std::size_t>(count), 3);
    const Memory& memory = exec_->scratch.memory();
    memory.copy(anchors.data, any.data(), count * 4, exec_->stream);
    memory.copy(anchors.data, step.anchors.data, own * 4, exec_->stream);
    memory.wait(exec_->stream);
    const PlacedStep placed(model_.model(), step, {.padded_sequences = count}, *exec_);
    return drafts_[{step.length, count}].run(*exec_, [&] {
      return run_draft(model_.model(), placed, anchors, cache_, model_.ops(), *exec_, options_);
    });
  }

 private:
  static constexpr std::size_t kScratch = std::size_t{256} << 20;

  int64_t sequences_of(int64_t own) const { return align_up(own, multiple_.sequences); }

  RowSetSize multiple_;
  std::map<std::pair<int64_t, int64_t>, Recording<StepOutput>> steps_;
  std::map<std::pair<int64_t, int64_t>, Recording<DraftOutput>> drafts_;
};

Timeline text(std::mt19937& random, const ModelConfig& config, int64_t prompt, int64_t rest) {
  Timeline timeline = random_timeline(random, config, prompt + rest);
  timeline.is_image.assign(timeline.is_image.size(), 0);
  timeline.prompt_length = prompt;
  return timeline;
}

class PaddedTest : public ::testing::TestWithParam<Backend> {
 protected:
  /// Feeds the prompts as they are, then the rest in steps that are filled up, with drafts between
  /// them that must be those of an unpadded rig.
  void run(const TestModel& model, unsigned seed, int64_t rows, int64_t sequences) const {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    PaddedRig rig(model, 1 + static_cast<int>(seed % 2));
    Rig plain(model, 1);
    rig.scatter(random);
    plain.scatter(random);
    std::vector<Timeline> timelines;
    std::vector<Lane> lanes, twins;
    lanes.reserve(6);
    twins.reserve(6);
    for (const int64_t prompt : {1, 150, 33, 7, 90, 64}) {
      timelines.push_back(text(random, model.config(), prompt, 10));
      lanes.emplace_back(timelines.back(), rig.cache());
      twins.emplace_back(timelines.back(), plain.cache());
      rig.step({{&lanes.back(), prompt}});
      plain.step({{&twins.back(), prompt}});
    }
    rig.pad(rows, sequences);
    decode(rig, lanes, plain, twins, random);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Trace padded{lanes[i].logits, rig.cache_bytes(lanes[i])};
      EXPECT_TRUE(padded == run_alone(model, timelines[i])) << "sequence " << i;
    }
  }

 private:
  static void decode(
      PaddedRig& rig,
      std::vector<Lane>& lanes,
      Rig& plain,
      std::vector<Lane>& twins,
      std::mt19937& random
  ) {
    std::vector<std::size_t> open = {0, 1, 2, 3, 4, 5};
    for (;;) {
      std::erase_if(open, [&](std::size_t i) { return lanes[i].left() == 0; });
      if (open.empty()) return;
      std::shuffle(open.begin(), open.end(), random);
      const std::size_t count = 1 + random() % open.size();
      std::vector<Piece> pieces;
      std::vector<Lane*> drafting;
      for (std::size_t i = 0; i < count; ++i) {
        Lane& lane = lanes[open[i]];
        const auto most = static_cast<uint64_t>(std::min(lane.left(), kMostRows));
        pieces.push_back({&lane, 1 + static_cast<int64_t>(random() % most)});
        drafting.push_back(&lane);
      }
      const int64_t length = 1 + 2 * static_cast<int64_t>(random() % 2);
      const std::vector<Drafts> drafts = rig.draft(drafting, length);
      for (std::size_t i = 0; i < count; ++i) {
        Lane& twin = twins[open[i]];
        EXPECT_EQ(drafts[i], plain.draft({&twin}, length).front()) << "sequence " << open[i];
        plain.step({{&twin, pieces[i].count}});
      }
      rig.step(pieces);
    }
  }
};

TEST_P(PaddedTest, StepsAndDraftsAreWhatTheyAreWithoutPadding) {
  const TestModel tiny(kTiny, *GetParam().ops);
  run(tiny, 1, 8, 4);
  if (GetParam().name == "ref") return;  // the oracle is slow
  run(tiny, 2, 1, 1);
  run(tiny, 3, 40, 6);
}

TEST_P(PaddedTest, OfTheDefaultModel) {
  if (GetParam().name == "ref") GTEST_SKIP() << "the oracle is slow";
  const TestModel seedling(kSeedling, *GetParam().ops);
  run(seedling, 30, 8, 4);
}

INSTANTIATE_TEST_SUITE_P(
    EveryBackend,
    PaddedTest,
    ::testing::ValuesIn(testing::backends_and_devices()),
    [](const ::testing::TestParamInfo<Backend>& backend) { return backend.param.name; }
);

}  // namespace
}  // namespace di::model
