// What the control orders step by step: modes, control steps, pauses, and what it remembers.
#include "sched/draft_control.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

/// An engine whose sequences all decode, each with its own acceptance.
class Engine {
 public:
  explicit Engine(DraftMode mode, int64_t control_steps = 1) : control({mode, 5, control_steps}) {}

  /// One step of the sequences; `accepted` of each one's drafts stay.
  DraftOrders step(const std::map<SequenceId, int64_t>& accepted) {
    std::vector<SequenceId> ids;
    for (const auto& [id, count] : accepted)
      ids.push_back(id);
    const auto n = static_cast<int64_t>(ids.size());
    const DraftOrders orders =
        control.plan({.drawing = ids, .num_decoding = n, .key_pairs = 100 * n});
    std::vector<SequenceDrafts> drafts;
    DraftOutcome outcome{.phase = orders.phase, .num_decoding = n, .num_tokens = n};
    outcome.shape = {.rows = n, .key_pairs = 100 * n};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      SequenceDrafts sequence{.id = ids[i], .drafted = orders.drafts[i] != 0};
      if (orders.verifies() && has_drafts[ids[i]]) {
        sequence.verified = 3;
        sequence.accepted = accepted.at(ids[i]);
      }
      has_drafts[ids[i]] = sequence.drafted;
      outcome.shape.rows += sequence.verified;
      outcome.shape.drafting += sequence.drafted ? 1 : 0;
      outcome.num_tokens += sequence.accepted;
      drafts.push_back(sequence);
    }
    const double drafting = outcome.shape.drafting > 0 ? 0.001 : 0;
    outcome.seconds = {
        0.010 + 0.0005 * static_cast<double>(outcome.shape.rows) + drafting, drafting};
    outcome.sequences = drafts;
    control.observe(outcome);
    return orders;
  }

  DraftControl control;
  std::map<SequenceId, bool> has_drafts;
};

TEST(DraftControl, OffMakesAndVerifiesNone) {
  Engine engine(DraftMode::kOff);
  for (int i = 0; i < 100; ++i) {
    const DraftOrders orders = engine.step({{1, 3}, {2, 3}});
    EXPECT_EQ(orders.phase, DraftPhase::kOff);
    EXPECT_EQ(orders.max_verified, 0);
    EXPECT_EQ(orders.costs, nullptr);
    EXPECT_EQ(orders.drafts, (std::vector<uint8_t>{0, 0}));
  }
  EXPECT_FALSE(engine.control.state().drafting);
}

TEST(DraftControl, StaticAlwaysDoesAll) {
  Engine engine(DraftMode::kStatic);
  for (int i = 0; i < 300; ++i) {
    const DraftOrders orders = engine.step({{1, 0}, {2, 0}});
    EXPECT_EQ(orders.phase, DraftPhase::kDraft);
    EXPECT_EQ(orders.max_verified, 5);
    EXPECT_EQ(orders.costs, nullptr);
    EXPECT_EQ(orders.drafts, (std::vector<uint8_t>{1, 1}));
  }
  EXPECT_TRUE(engine.control.state().drafting);
  EXPECT_EQ(engine.control.state().num_control, 0);
}

TEST(DraftControl, ControlStepsAreRareSpreadAndFollowedByResuming) {
  Engine engine(DraftMode::kAdaptive);
  std::vector<int> off;
  DraftPhase before = DraftPhase::kOff;
  for (int i = 0; i < 4000; ++i) {
    const DraftOrders orders = engine.step({{1, 1}, {2, 1}});
    if (i > 0) {
      EXPECT_EQ(orders.phase == DraftPhase::kResume, before == DraftPhase::kOff);
    }
    if (orders.phase == DraftPhase::kOff) {
      off.push_back(i);
      EXPECT_EQ(orders.drafts, (std::vector<uint8_t>{0, 0}));
    } else {
      EXPECT_NE(orders.costs, nullptr);
      EXPECT_EQ(orders.max_verified, orders.phase == DraftPhase::kDraft ? 5 : 0);
    }
    before = orders.phase;
  }
  EXPECT_TRUE(engine.control.state().drafting);
  EXPECT_GT(engine.control.state().advantage, 1.2);
  EXPECT_EQ(static_cast<int64_t>(off.size()), engine.control.state().num_control);
  EXPECT_GT(off.size(), 30u);
  EXPECT_LT(off.size(), 90u);
  for (std::size_t i = 20; i < off.size(); ++i)
    EXPECT_GE(off[i] - off[i - 1], 32);
}

TEST(DraftControl, ControlStepsComeInPairsWhereTheFirstTellsNothing) {
  Engine engine(DraftMode::kAdaptive, 2);
  std::vector<int> lengths;
  int length = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool off = engine.step({{1, 3}, {2, 3}}).phase == DraftPhase::kOff;
    if (!off && length > 0) lengths.push_back(length);
    length = off ? length + 1 : 0;
  }
  EXPECT_GT(lengths.size(), 8u);
  EXPECT_EQ(lengths, std::vector<int>(lengths.size(), 2));
}

TEST(DraftControl, AControlThatPromptsCutShortIsNotMadeUpFor) {
  DraftControl control({DraftMode::kAdaptive, 5, 2});
  const std::vector<SequenceId> ids = {1};
  int length = 0, begun = 0, pairs = 0, cut = 0;
  bool prompt = false;
  for (int i = 0; i < 400; ++i) {
    DraftStep step{.drawing = ids, .num_decoding = 1, .prefill_rows = prompt ? 16 : 0};
    step.key_pairs = 100;
    if (control.plan(step).phase == DraftPhase::kOff) {
      ++length;
    } else {
      EXPECT_TRUE(length != 1 || prompt) << "half a control tells nothing";
      pairs += length == 2 ? 1 : 0;
      cut += length == 1 ? 1 : 0;
      length = 0;
    }
    prompt = length == 1 && ++begun % 2 == 0;
  }
  EXPECT_GT(pairs, 5);
  EXPECT_GT(cut, 5);
}

TEST(DraftControl, StepsWithPromptRowsAreNoControlSteps) {
  DraftControl control({DraftMode::kAdaptive, 5});
  const std::vector<SequenceId> ids = {1};
  for (int i = 0; i < 300; ++i) {
    const DraftOrders orders =
        control.plan({.drawing = ids, .num_decoding = 1, .prefill_rows = 16, .key_pairs = 100});
    EXPECT_EQ(orders.phase, i == 0 ? DraftPhase::kResume : DraftPhase::kDraft);
  }
}

TEST(DraftControl, DraftsThatNeverHelpRest) {
  Engine engine(DraftMode::kAdaptive);
  int64_t drafted = 0;
  for (int i = 0; i < 8000; ++i) {
    // New sequences all the time: it is not their pauses that save the engine.
    const DraftOrders orders = engine.step({{i / 10, 0}, {-1 - i / 10, 0}});
    if (i % 10 == 9) {
      engine.control.forget(i / 10);
      engine.control.forget(-1 - i / 10);
    }
    if (i >= 1000) drafted += orders.phase == DraftPhase::kOff ? 0 : 1;
  }
  EXPECT_LT(drafted, 7000 / 20);
  EXPECT_GT(engine.control.state().num_trials, 2);
}

TEST(DraftControl, AHopelessSequencePausesAndTriesAgain) {
  Engine engine(DraftMode::kAdaptive);
  std::vector<int> pauses;  // lengths
  int length = 0;
  int64_t good = 0;
  for (int i = 0; i < 3000; ++i) {
    const DraftOrders orders = engine.step({{1, 3}, {2, 0}, {3, 3}});
    if (orders.phase == DraftPhase::kOff) continue;
    good += orders.drafts[0] + orders.drafts[2];
    if (orders.drafts[1] == 0) {
      ++length;
    } else if (length > 0) {
      pauses.push_back(length);
      length = 0;
    }
    EXPECT_EQ(engine.control.state().num_paused <= 1, true);
  }
  EXPECT_GT(good, 5500);
  ASSERT_GE(pauses.size(), 4u);
  EXPECT_EQ(pauses[0], 16);
  for (std::size_t i = 1; i < pauses.size(); ++i)
    EXPECT_EQ(pauses[i], std::min(2 * pauses[i - 1], 512));
}

TEST(DraftControl, ASequenceThatRecoversIsTrusted) {
  Engine engine(DraftMode::kAdaptive);
  const auto idle_steps = [&](int64_t accepted, int steps) {
    int idle = 0;
    for (int i = 0; i < steps; ++i) {
      const DraftOrders orders = engine.step({{1, 3}, {2, accepted}});
      idle += orders.phase != DraftPhase::kOff && orders.drafts[1] == 0 ? 1 : 0;
    }
    return idle;
  };
  EXPECT_GT(idle_steps(0, 400), 200);
  EXPECT_LE(idle_steps(3, 1000), 512);
  EXPECT_EQ(idle_steps(3, 1000), 0);
  // Its next pause is a short one.
  engine.control.state();
  EXPECT_LE(idle_steps(0, 60), 16 + 30);
}

TEST(DraftControl, RemembersWhoLivesAndForgetsWhoEnds) {
  Engine engine(DraftMode::kAdaptive);
  for (int i = 0; i < 200; ++i)
    engine.step({{1, 3}, {2, 0}});
  EXPECT_EQ(engine.control.num_sequences(), 2u);
  // Preempted: away for a while, and paused as before when it is back.
  int64_t paused = engine.control.state().num_paused;
  for (int i = 0; i < 50; ++i)
    engine.step({{1, 3}});
  EXPECT_EQ(engine.control.state().num_paused, paused);
  EXPECT_EQ(engine.control.num_sequences(), 2u);

  engine.control.forget(2);
  engine.control.forget(2);
  engine.control.forget(77);
  EXPECT_EQ(engine.control.num_sequences(), 1u);
  // News of it that was in flight brings nothing back.
  const std::vector<SequenceDrafts> late = {
      {.id = 2, .verified = 3, .accepted = 1, .drafted = true}};
  engine.control.observe(
      {.phase = DraftPhase::kDraft,
       .shape = {.rows = 4, .drafting = 1},
       .seconds = {0.01, 0.001},
       .num_decoding = 1,
       .num_tokens = 2,
       .sequences = late}
  );
  EXPECT_EQ(engine.control.num_sequences(), 1u);
  for (SequenceId id = 100; id < 5000; ++id) {
    engine.step({{id, 1}});
    engine.control.forget(id);
  }
  EXPECT_EQ(engine.control.num_sequences(), 1u);
}

TEST(DraftControl, ConfidencesAreBelievedAsFarAsTheyCameTrue) {
  DraftControl control({DraftMode::kAdaptive, 5});
  const std::vector<SequenceId> ids = {1, 2, 3};
  const auto trust = [&] {
    DraftOrders orders;
    while (!orders.verifies())
      orders = control.plan({.drawing = ids, .num_decoding = 3, .key_pairs = 300});
    return orders.trust;
  };
  EXPECT_EQ(trust(), (std::vector<double>{1, 1, 1}));
  for (int i = 0; i < 50; ++i) {
    const std::vector<SequenceDrafts> drafts = {
        {.id = 1, .verified = 4, .accepted = 3, .expected = 3.0},
        {.id = 2, .verified = 4, .accepted = 1, .expected = 3.0}};
    control.observe({.phase = DraftPhase::kDraft, .num_decoding = 2, .sequences = drafts});
  }
  const std::vector<double> found = trust();
  EXPECT_NEAR(found[0], 1, 0.05);
  EXPECT_NEAR(found[1], 1.0 / 3, 0.05);
  EXPECT_NEAR(found[2], 2.0 / 3, 0.05) << "like the others, of which it is one";
}

TEST(DraftControl, EmptyStepsDoNoHarm) {
  DraftControl control({DraftMode::kAdaptive, 5});
  for (int i = 0; i < 200; ++i) {
    const DraftOrders orders = control.plan({});
    EXPECT_TRUE(orders.drafts.empty());
    control.observe({.phase = orders.phase});
  }
}

}  // namespace
}  // namespace di::sched
