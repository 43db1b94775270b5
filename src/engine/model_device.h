// ModelDevice: steps by the model's forward pass, on the op table of any backend; tokens are drawn
// on the processor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device.h"
#include "engine/expert_counter.h"
#include "engine/host_draft_chooser.h"
#include "engine/slot_arrays.h"
#include "engine/slot_drafts.h"
#include "ops/exec.h"
#include "sampling/draft_verifier.h"

namespace di::engine {

/// What it keeps between steps is a table with one entry a slot.
///
/// Thread: one at a time.
class ModelDevice final : public SynchronousDevice {
 public:
  explicit ModelDevice(const DeviceParts& parts);

  StepResult run(const StepInputs& inputs) override;

 private:
  /// The sequence in a slot.
  struct Entry {
    std::shared_ptr<const Admission> admission;
    std::vector<int32_t> tokens;  ///< prompt and outputs; a decode row's token is the last one.
                                  ///< While a step verifies drafts, these are behind it
    std::vector<int32_t> block_table;
    std::unique_ptr<sampling::Sampler> sampler;
    SlotDrafts drafts;
    bool ended = false;  ///< an end token was drawn: later rows are skipped
  };

  /// The rows of one sequence in the step that runs.
  struct Run {
    Entry* entry = nullptr;
    SequenceResult* result = nullptr;
    int64_t num_drafts = 0;  // that it verifies
  };

  /// Draws from the rows of logits behind a sequence's newest token and the drafts it verifies.
  struct PlannedDraw {
    Entry* entry = nullptr;
    SequenceResult* result = nullptr;
    int64_t logits_row = 0;
    int64_t num_drafts = 0;
    int32_t slot = 0;
    bool drafts = false;  // for the next step
  };

  /// Scores of prompt tokens from consecutive rows of logits.
  struct PlannedScores {
    Entry* entry = nullptr;
    SequenceResult* result = nullptr;
    int64_t logits_row = 0;
    int64_t first_token = 0;  ///< index of the token that the first row predicts
    int64_t count = 0;
  };

  /// What a step yields, where the processor reads it.
  struct Output {
    std::vector<uint8_t> finite;  ///< model::StepOutput::finite
    std::vector<float> fetched;   ///< behind `logits`, unless they lie in the scratch
    View<const float, 2> logits;
  };

  Output compute(const StepInputs& inputs);
  model::StepOutput forward(const StepInputs& inputs);
  /// Ends the sequences whose rows are not finite.
  void end_astray(const std::vector<uint8_t>& finite);
  void start(Entry& entry, std::shared_ptr<const Admission> admission, std::vector<int32_t> blocks);
  void add_rows(const SequenceOrder& order, int64_t num_drafts, SequenceResult& result);
  void add_fork(const ForkOrder& order, SequenceResult& result);
  void draw(const View<const float, 2>& logits);
  void draw_one(
      const View<const float, 2>& logits, const PlannedDraw& planned, sampling::RowsScratch& scratch
  );
  /// Drafts for those that have drawn and go on.
  void draft(const StepInputs& inputs, StepResult& result);
  void keep_drafts(
      const model::DraftOutput& output,
      const std::vector<Entry*>& entries,
      HostDraftChooser& chooser
  );
  void score(const View<const float, 2>& logits);
  StepResult run_checked(const StepInputs& inputs);
  /// After a failed step: rows of these sequences that are already on their way are skipped.
  void end_all(const StepInputs& inputs);

  const model::Model& model_;
  const ops::OpTable& ops_;
  cache::KvCache& cache_;
  ops::OwnedExec owned_exec_;
  ops::Exec& exec_;
  SlotArrays slot_tokens_;
  SlotArrays slot_blocks_;
  model::Replay replay_;
  int64_t num_drafts_;
  std::vector<double> draft_temperatures_;
  std::vector<Entry> entries_;  // [slots]
  ExpertCounter expert_counter_;

  // Of the step that runs.
  model::Step step_;
  std::vector<Run> runs_;  // beside step_.sequences
  std::vector<PlannedDraw> draws_;
  std::vector<PlannedScores> scores_;
  int64_t num_logit_rows_ = 0;
};

}  // namespace di::engine
