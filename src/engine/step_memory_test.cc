// What the rehearsal of a device says about steps that verify and passes that draft, against those
// passes over a real model.
#include <gtest/gtest.h>

#include "engine/loaded_model.h"
#include "engine/make_device.h"
#include "engine/testing.h"
#include "model/testing.h"

namespace di::engine {
namespace {

constexpr StepLimits kLimits{
    .context = 256, .max_rows = 36, .max_seqs = 6, .num_slots = 6, .num_drafts = 5};

/// Every sequence verifies and drafts as much as it may, at the end of its context.
class FullPasses {
 public:
  FullPasses()
      : exec_(pool_, model_.ops().memory()),
        inputs_(pool_, model_.ops().memory()),
        cache_(cache::make_layout(model_.config()), 12, kLimits.num_slots, model_.ops().memory()),
        tokens_(ops::place(*inputs_, words_)) {
    exec_->scratch.reserve(std::size_t{64} << 20);  // in one piece, as a device does
    for (int64_t s = 0; s < kLimits.max_seqs; ++s) {
      states_.emplace_back(cache_);
      states_.back().reserve_tokens(kLimits.context);
      tables_.push_back(ops::place(*inputs_, states_.back().block_table()).data);
    }
    inputs_->scratch.memory().wait(inputs_->stream);
  }

  void verify() {
    const Arena::Scope scope(exec_->scratch);
    model::Step step;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      step.sequences.push_back(
          {.tokens = tokens(),
           .start = kLimits.context - 1 - kLimits.num_drafts,
           .slot = states_[s].slot(),
           .block_table = tables_[s],
           .logits = model::LogitRows::kAll}
      );
    }
    const model::PlacedStep placed(
        model_.model(),
        step,
        {.padded_rows = kLimits.max_rows,
         .padded_sequences = kLimits.max_seqs,
         .most_rows = 1 + kLimits.num_drafts,
         .max_length = 4096},
        *exec_
    );
    const model::ForwardOptions options{.draft_context = true, .keep_expert_ids = true};
    run_placed(model_.model(), placed, cache_, model_.ops(), *exec_, options);
    exec_->scratch.memory().wait(exec_->stream);
  }

  void draft() {
    const Arena::Scope scope(exec_->scratch);
    model::DraftStep step{.sequences = {}, .anchors = {}, .length = kLimits.num_drafts};
    for (const cache::SequenceState& state : states_)
      step.sequences.push_back({.tokens = tokens(), .slot = state.slot()});
    const model::PlacedStep placed(model_.model(), step, {}, *exec_);
    const View<const int32_t, 1> anchors(tokens_.data, kLimits.max_seqs);
    run_draft(model_.model(), placed, anchors, cache_, model_.ops(), *exec_);
    exec_->scratch.memory().wait(exec_->stream);
  }

  double peak() { return static_cast<double>(exec_->scratch.peak_bytes()); }

 private:
  std::span<const int32_t> tokens() const {
    return {tokens_.data, static_cast<std::size_t>(kLimits.context)};
  }

  const model::testing::TestModel model_{DI_SEEDLING, select_ops("cuda", "")};
  ThreadPool pool_{1};
  ops::OwnedExec exec_;
  ops::OwnedExec inputs_;
  cache::KvCache cache_;
  const std::vector<int32_t> words_ = std::vector<int32_t>(kLimits.context, 7);
  View<const int32_t, 1> tokens_;
  std::vector<cache::SequenceState> states_;
  std::vector<const int32_t*> tables_;
};

TEST(StepMemory, OfVerifyingAndDraftingIsPlanned) {
  if (testing::backend() != "cuda") GTEST_SKIP() << "nothing is rehearsed for the processor";
  ThreadPool pool(1);
  const auto checkpoint = checkpoint::Checkpoint::open(DI_SEEDLING, pool);
  const ops::OpTable& ops = select_ops("cuda", "");
  const auto measure = [&](const StepLimits& limits) {
    return measure_steps(checkpoint, ops, pool, limits).value();
  };
  const model::StepMemory planned = measure(kLimits);
  StepLimits plain = kLimits;
  plain.num_drafts = 0;
  EXPECT_GE(planned.graphs, measure(plain).graphs);  // small ones fit what a device gave before
  EXPECT_GT(planned.scratch, measure(plain).scratch);

  FullPasses passes;
  passes.verify();
  const double verified = passes.peak();
  passes.draft();
  const auto scratch = static_cast<double>(planned.scratch);
  std::printf(
      "planned %.2f MB, verified with %.2f, drafted within %.2f; graphs %.1f MB\n",
      scratch / 1e6,
      verified / 1e6,
      passes.peak() / 1e6,
      static_cast<double>(planned.graphs) / 1e6
  );
  EXPECT_LE(passes.peak(), scratch);
  EXPECT_GE(passes.peak(), 0.98 * scratch);
}

}  // namespace
}  // namespace di::engine
