// How many drafts a step verifies, and which of a drafter's tokens are drafts at all.
#include "engine/slot_drafts.h"

#include <limits>
#include <memory>

#include <gtest/gtest.h>

namespace di::engine {
namespace {

using Counts = std::vector<int64_t>;

constexpr auto kExactSeed = sampling::VerificationRule::kExactSeed;
constexpr auto kBlock = sampling::VerificationRule::kBlock;

SlotDrafts drafts_of(const sched::Survivals& survivals) {
  return {.tokens = std::vector<int32_t>(survivals.size(), 7), .survivals = survivals};
}

/// Drafts of slots 0, 1, …, all of one rule.
HeldDrafts held_by(std::vector<const SlotDrafts*> slots, sampling::VerificationRule rule) {
  auto own = std::make_shared<std::vector<SlotDrafts>>();
  for (const SlotDrafts*& drafts : slots) {
    own->push_back(drafts == nullptr ? SlotDrafts() : *drafts);
    own->back().rule = rule;
  }
  return [slots, own](int32_t slot) {
    const auto at = static_cast<std::size_t>(slot);
    return slots[at] == nullptr ? nullptr : &(*own)[at];
  };
}

/// Sequences that may verify so many drafts each.
StepInputs step_of(const Counts& allowed) {
  StepInputs inputs{.max_verified = 5};
  for (const int64_t count : allowed) {
    SequenceOrder order{.drafts = true};
    order.rows.num_rows = 1;
    order.rows.num_drafts = count;
    order.rows.slot = static_cast<int32_t>(inputs.sequences.size());
    inputs.sequences.push_back(std::move(order));
  }
  return inputs;
}

std::shared_ptr<const sched::StepCosts> costs_of(
    const std::vector<sched::RowCosts::Point>& convex,
    const std::vector<sched::RowCosts::Point>& measured
) {
  return std::make_shared<const sched::StepCosts>(sched::StepCosts{
      sched::RowCosts(convex), sched::RowCosts(measured)});
}

TEST(DraftsToVerify, AreFewerWhereConfidencesAreNotTrusted) {
  const SlotDrafts drafts = drafts_of({0.9, 0.8, 0.7, 0.6, 0.5});
  StepInputs inputs = step_of({5, 5});
  // A row pays when its survival is above 0.4.
  inputs.costs = costs_of({{1, 1.0}, {12, 3.2}}, {{1, 1.0}, {12, 3.2}});
  const auto held = held_by({&drafts, &drafts}, kExactSeed);
  const Counts before = drafts_to_verify(inputs, held);
  inputs.sequences[0].trust = 0.2;
  const Counts after = drafts_to_verify(inputs, held);
  EXPECT_EQ(before, (Counts{4, 4}));
  EXPECT_EQ(after[0], 0);
  EXPECT_GE(after[1], 4);
}

TEST(DraftsToVerify, AreAsManyAsThePlanTheStepAndTheSlotAllow) {
  const SlotDrafts five = drafts_of({0.9, 0.8, 0.7, 0.6, 0.5}), one = drafts_of({0.4});
  const std::vector<const SlotDrafts*> held = {&five, &one, nullptr, &five};
  StepInputs inputs = step_of({5, 5, 5, 2});
  EXPECT_EQ(drafts_to_verify(inputs, held_by(held, kExactSeed)), (Counts{5, 1, 0, 2}));
  inputs.max_verified = 3;
  EXPECT_EQ(drafts_to_verify(inputs, held_by(held, kBlock)), (Counts{3, 1, 0, 2}));
  inputs.max_verified = 0;
  EXPECT_EQ(drafts_to_verify(inputs, held_by(held, kExactSeed)), (Counts{0, 0, 0, 0}));
}

TEST(DraftsToVerify, WithCostsAreThoseThatPay) {
  const SlotDrafts good = drafts_of({0.9, 0.8}), bad = drafts_of({0.01, 0.001});
  const std::vector<const SlotDrafts*> held = {&good, &bad};
  StepInputs inputs = step_of({2, 2});
  const std::vector<sched::RowCosts::Point> slope = {{2, 1.0}, {6, 1.4}};
  inputs.costs = costs_of(slope, slope);
  for (const auto rule : {kBlock, kExactSeed})
    EXPECT_EQ(drafts_to_verify(inputs, held_by(held, rule)), (Counts{2, 0}));
}

TEST(DraftsToVerify, GoBeyondAStairWhereTheyMaySeeWhatLiesBehind) {
  const SlotDrafts drafts = drafts_of({0.5, 0.45, 0.4});
  const std::vector<const SlotDrafts*> held = {&drafts};
  StepInputs inputs = step_of({3});
  const std::vector<sched::RowCosts::Point> stair = {{1, 1.0}, {2, 1.6}, {4, 1.6}};
  inputs.costs = costs_of(stair, stair);
  EXPECT_EQ(drafts_to_verify(inputs, held_by(held, kBlock)), (Counts{0}));
  EXPECT_EQ(drafts_to_verify(inputs, held_by(held, kExactSeed)), (Counts{3}));
}

/// Of the one sequence that these are of.
SlotDrafts usable(
    const std::vector<int32_t>& tokens, const std::vector<float>& confidence, int64_t vocab_size
) {
  const int64_t length = std::ssize(tokens);
  return usable_drafts(
      {View<const int32_t, 2>(tokens.data(), length, 1),
       View<const float, 2>(confidence.data(), length, 1)},
      0,
      {},
      vocab_size
  );
}

TEST(UsableDrafts, EndBeforeTheFirstThatIsNone) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> tokens = {3, 4, 5};
  const std::vector<float> confidence = {0, 1, 2};
  EXPECT_EQ(usable(tokens, confidence, 100).count(), 3);
  EXPECT_DOUBLE_EQ(usable(tokens, confidence, 100).survivals[0], 0.5);
  EXPECT_EQ(usable(tokens, confidence, 5).count(), 2) << "5 is no token";
  EXPECT_EQ(usable({-1, 4, 5}, confidence, 100).count(), 0);
  const SlotDrafts broken = usable(tokens, {0, kNan, 2}, 100);
  EXPECT_EQ(broken.tokens, (std::vector<int32_t>{3}));
  EXPECT_EQ(broken.survivals.size(), 1u);
}

}  // namespace
}  // namespace di::engine
