// CudaDevice: steps on one GPU that go from one to the next without the processor. Tokens are drawn
// on the device and stay there; what the processor reads of a step is a few bytes a sequence, one
// step later.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/draft_pass.h"
#include "engine/cuda/recorded_sizes.h"
#include "engine/cuda/recordings.h"
#include "engine/cuda/slot_memory.h"
#include "engine/cuda/step_buffers.h"
#include "engine/cuda/step_trace.h"
#include "engine/device.h"
#include "model/placed_step.h"
#include "sampling/cuda/slot.h"
#include "sampling/cuda/verify.h"

namespace di::engine::cuda {

/// Up to two steps are on the device at once. A step that only decodes is recorded the second time
/// that one of its size comes, and played from then on. Behind a step that verifies drafts or makes
/// some nothing is launched before it is done: where the next rows lie, and how many drafts they
/// verify, follows from its results.
///
/// Thread: one at a time.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceParts& parts);
  ~CudaDevice() override;

  void launch(StepInputs inputs) override;
  bool takes_another() const override;
  bool done() const override;
  StepResult collect() override;

 private:
  static constexpr int64_t kDepth = 2;
  /// One more is remembered: when it ended is asked when the step behind it is collected.
  static constexpr int64_t kRing = kDepth + 1;

  /// The sequence in a slot.
  struct Entry {
    std::shared_ptr<const Admission> admission;
    std::unique_ptr<sampling::cuda::DeviceSlot> sampling;
    int64_t num_blocks = 0;
    int64_t num_tokens = 0;  ///< with drafts: prompt and outputs, those that are being drawn too
    SlotDrafts drafts;       ///< behind these, on the device too
    bool ended = false;      ///< a collected step ended it: its rows in later steps are skipped

    bool by_block() const { return admission->rule == sampling::VerificationRule::kBlock; }
  };

  /// Where the rows of logits of one sequence's result lie.
  struct PlannedResult {
    int32_t slot = 0;
    int64_t sequence = -1;  ///< index into the step's sequences; −1: a fork
    int64_t draw_row = -1;  ///< of the first draw; −1: nothing is drawn
    int64_t drawn = -1;     ///< where draws are counted; −1: there is one
    SlotDrafts verified = {};
    int64_t drafting = -1;  ///< its place among those that draft; −1: it does not
    int64_t score_row = 0;  ///< first of the scored rows
    int64_t num_scores = 0;
    int64_t first_token = 0;  ///< index of the token that the first scored row predicts
  };

  /// A step between launch and collect.
  struct InFlight {
    StepBuffers buffers;
    StepResult result;
    std::vector<PlannedResult> planned;  // beside result.sequences
    ResultShape shape;
    double expert_mean = 0;  // StepResult::expert_mean
    int64_t num_drafting = 0;
    bool on_device = false;   // something was enqueued
    bool has_drafts = false;  // verifies some, or makes some
    bool at_once = false;     // StepInputs::at_once
    bool waited = false;      // was launched when the step before was done, since that had drafts
    std::unique_ptr<StepTrace> trace;
  };

  /// Which recorded step a step can be played on.
  struct GraphKey {
    RecordedSize size;
    int64_t most = 0;  ///< best tokens that its draws report
    bool draft_context = false;
    auto operator<=>(const GraphKey&) const = default;
  };

  void start(int32_t slot, std::shared_ptr<const Admission> admission, InFlight& flight);
  void append_blocks(int32_t slot, const std::vector<int32_t>& blocks, InFlight& flight);
  /// Copies to the device, in the order of the stream, without waiting for it.
  template <class T>
  void upload(T* to, std::span<const T> values, InFlight& flight);
  void plan_rows(const SequenceOrder& order, int64_t num_drafts, InFlight& flight);
  void plan_draws(const SequenceOrder& order, int64_t end, PlannedResult& planned);
  void plan_draft(int32_t slot, int64_t known, PlannedResult& planned);
  void plan_fork(const ForkOrder& order, InFlight& flight);
  void enqueue(const StepInputs& inputs, InFlight& flight);
  void enqueue_mixed(const StepInputs& inputs, InFlight& flight);
  void enqueue_scores(
      const View<const float, 2>& logits, const sampling::cuda::Drawn& results, InFlight& flight
  );
  void enqueue_forks(
      const StepInputs& inputs,
      const View<const float, 2>& logits,
      const View<const sampling::cuda::DrawRow, 1>& rows,
      const sampling::cuda::Drawn& results,
      const InFlight& flight
  );
  bool is_plain_decode(const StepInputs& inputs) const;
  void enqueue_decode(InFlight& flight);
  /// The pass, the counting of its experts, and its logits.
  View<const float, 2> enqueue_pass(const model::PlacedStep& placed, StepTrace* trace);
  void enqueue_counts(const model::PlacedStep& placed, const View<const int32_t, 3>& expert_ids);
  void start_trace(const StepInputs& inputs, InFlight& flight);
  template <class T>
  View<const T, 1> place(const std::vector<T>& values, InFlight& flight);
  void draw(
      const View<const float, 2>& logits,
      const View<const sampling::cuda::DrawRow, 1>& rows,
      const sampling::cuda::Drawn& results
  );
  /// The draws of a step that may verify up to `most_drafts` of a sequence.
  void verify(
      const View<const float, 2>& logits,
      const View<const sampling::cuda::VerifyBlock, 1>& blocks,
      int64_t most_drafts,
      const sampling::cuda::Drawn& results
  );
  /// Makes room for a step's results on the device.
  void reserve_results(const ResultShape& shape);
  void fetch(const model::PlacedStep& placed, InFlight& flight);
  void fail(InFlight& flight, const std::string& error);
  InFlight& flight(int64_t step) { return ring_[static_cast<std::size_t>(step % kRing)]; }
  const InFlight& flight(int64_t step) const {
    return ring_[static_cast<std::size_t>(step % kRing)];
  }
  void read_times(const InFlight& before, InFlight& flight) const;
  void read_counts(InFlight& flight);
  void read_results(InFlight& flight);
  void read_scores(const InFlight& flight, const PlannedResult& planned, SequenceResult& result);
  void read_draws(const InFlight& flight, const PlannedResult& planned, SequenceResult& result);
  void read_drafts(const InFlight& flight, const PlannedResult& planned, SequenceResult& result);

  const DeviceParts parts_;
  ops::OwnedExec owned_exec_;
  ops::Exec& exec_;
  std::vector<Entry> entries_;  // [slots]
  SlotMemory slots_;
  std::optional<DraftPass> drafts_;     // when there are any
  int64_t count_bytes_;                 // of the experts' counts, in front of the results
  std::shared_ptr<std::byte> results_;  // counts, and Drawn, of the step that runs
  int64_t result_bytes_ = 0;            // that results_ has room for
  std::array<InFlight, kRing> ring_;
  int64_t launched_ = 0;
  int64_t collected_ = 0;
  Recordings<GraphKey> recordings_;
  std::shared_ptr<TraceRecorder> traced_;  // of device_trace_
  std::shared_ptr<DeviceTrace> device_trace_;

  // Of the step that is being launched.
  model::Step step_;
  std::vector<sampling::cuda::DrawRow> draw_rows_;   // [logit rows, then forks]
  std::vector<sampling::cuda::VerifyBlock> blocks_;  // with drafts: of each sequence that draws
  int64_t num_forks_ = 0;
  bool draft_context_ = false;
  std::vector<DraftingSlot> drafting_;
  std::vector<int32_t> score_tokens_;  // [logit rows]: −1: not scored
  std::vector<int32_t> score_tops_;
  bool any_scores_ = false;
  int64_t most_ = 0;  // best tokens that a draw or score of the step reports
};

template <class T>
void CudaDevice::upload(T* to, std::span<const T> values, InFlight& flight) {
  if (values.empty()) return;
  T* staged = flight.buffers.uploads().take<T>(std::ssize(values));
  std::copy(values.begin(), values.end(), staged);
  parts_.ops.memory().copy(to, staged, static_cast<int64_t>(values.size_bytes()), exec_.stream);
}

}  // namespace di::engine::cuda
