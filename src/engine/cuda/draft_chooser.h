// DraftChooser: drafts by each request's own parameters, chosen on the device.
#pragma once

#include "model/draft.h"
#include "sampling/cuda/drafts.h"

namespace di::engine::cuda {

/// Chooses the drafts of one call of model::draft(); see sampling/cuda/drafts.h. Needed unless the
/// best tokens do as they are for all of its requests.
///
/// Thread: the one that runs the device.
class DraftChooser final : public model::DraftChooser {
 public:
  /// `rows` [sequences], with negative slots for padding; `slots`: of all slots, with the anchors
  /// counted. Both in device memory until the stream has passed.
  DraftChooser(
      const View<const sampling::cuda::DraftRow, 1>& rows,
      const View<const sampling::cuda::SlotParams, 1>& slots
  );

  void choose(
      ops::Exec& exec,
      int64_t index,
      const View<const float, 2>& logits,
      const View<int32_t, 1>& tokens
  ) override;

 private:
  View<const sampling::cuda::DraftRow, 1> rows_;
  View<const sampling::cuda::SlotParams, 1> slots_;
};

}  // namespace di::engine::cuda
