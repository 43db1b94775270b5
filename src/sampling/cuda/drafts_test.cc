// Drafts that are chosen on the device against choose_draft(), and their laws.
#include "sampling/cuda/drafts.h"

#include "sampling/cuda/verify_testing.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::testing::copy_now;
using ops::cuda::testing::DeviceArray;
using testing::describe;
using testing::RandomRequests;
using testing::Sequence;
using testing::Sequences;
using testing::Size;

/// The best token of a row as the drafter finds it: NaN is never it.
int32_t best_of(std::span<const float> row) {
  int32_t best = 0;
  float logit = -testing::kInfinity;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] > logit) {
      logit = row[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

/// What a record says a draft was drawn from, as DraftLaw.
DraftLaw law_of(const DraftRecord& record) {
  DraftLaw law;
  for (int32_t i = 0; record.count > 1 && i < record.count; ++i) {
    const auto mass = static_cast<double>(record.masses[i]);
    law.push_back({record.tokens[i], mass / static_cast<double>(record.mass)});
  }
  return law;
}

class DraftsOnCuda : public ::testing::TestWithParam<Size> {};

TEST_P(DraftsOnCuda, AreThoseOfTheSampler) {
  DI_NEEDS_GPU();
  const Size size = GetParam();
  const int64_t count = size.blocks;
  ops::cuda::testing::Machine machine;
  RandomRequests random(static_cast<unsigned>(size.vocab_size + 3), size.vocab_size);
  Sequences sequences(count, random, size.vocab_size, machine.stream());
  const DeviceArray<SlotParams> slots(sequences.slots);
  const DeviceArray<DraftRecord> records(count * size.most_drafts);
  std::vector<DraftRow> anchors;
  for (int64_t i = 0; i < count; ++i) {
    const Sequence& sequence = sequences.all[static_cast<std::size_t>(i)];
    const auto slot = static_cast<int32_t>(random.one_in(6) ? -1 : i);
    const bool is_block = sequence.rule == VerificationRule::kBlock;
    anchors.push_back(
        {.position = sequence.position,
         .slot = slot,
         .is_plain = is_plainly_greedy(sequence.slot()),
         .records = is_block ? records.data() + i * size.most_drafts : nullptr}
    );
  }
  const DeviceArray<DraftRow> device_anchors(anchors);
  const DeviceArray<int32_t> drafts(size.most_drafts * count);
  std::vector<std::vector<int32_t>> before(static_cast<std::size_t>(count));
  std::vector<double> scratch;
  for (int64_t index = 0; index < size.most_drafts; ++index) {
    std::vector<float> logits;
    std::vector<int32_t> best;
    std::vector<DraftLaw> laws;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::vector<float> row = random.logits();
      logits.insert(logits.end(), row.begin(), row.end());
      best.push_back(best_of(row));
      const Sequence& sequence = sequences.all[at];
      Sampler sampler = sequence.twins->host;
      DraftChoice choice =
          choose_draft(sampler, sequence.rule, {row, sequence.position, before[at]}, scratch);
      Sampler ahead = sampler;
      for (const int32_t token : before[at])
        ahead.count(token);
      const bool stays = anchors[at].slot < 0 || ahead.best_token(row, scratch) < 0;
      before[at].push_back(stays ? best.back() : choice.token);
      laws.push_back(std::move(choice.law));
    }
    const DeviceArray<float> device_logits(logits);
    const View<int32_t, 2> rows(drafts.data(), index + 1, count);
    copy_now(rows.row(index), best.data(), best.size() * sizeof(int32_t));
    choose_drafts(
        machine.stream(),
        {.logits = View<const float, 2>(device_logits.data(), count, size.vocab_size),
         .rows = View<const DraftRow, 1>(device_anchors.data(), count),
         .slots = View<const SlotParams, 1>(slots.data(), count),
         .drafts = rows}
    );
    const std::vector<int32_t> found = drafts.read();
    const std::vector<DraftRecord> written = records.read();
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(found[static_cast<std::size_t>(index * count + i)], before[at].back())
          << "draft " << index << " of " << i << ": " << describe(sequences.all[at].params);
      if (anchors[at].slot < 0 || anchors[at].records == nullptr) continue;
      const auto own = static_cast<std::size_t>(i * size.most_drafts + index);
      EXPECT_TRUE(law_of(written[own]) == laws[at])
          << "law of draft " << index << " of " << i << ", " << written[own].count << " for "
          << laws[at].size() << ": " << describe(sequences.all[at].params);
    }
  }
  for (const Sequence& sequence : sequences.all)
    sequence.expect_counted("drafts count nothing");
}

INSTANTIATE_TEST_SUITE_P(Sizes, DraftsOnCuda, testing::all_sizes());

}  // namespace
}  // namespace di::sampling::cuda
