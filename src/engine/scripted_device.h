// ScriptedDevice: draws what a test or benchmark says, without a model. For the host's side of the
// engine: its cost, and what becomes of steps and rows that fail.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/device.h"

namespace di::engine {

/// Thread: one at a time.
class ScriptedDevice final : public SynchronousDevice {
 public:
  /// Fills the results of one sequence's draws. May throw std::exception: then the whole step
  /// fails.
  using Script = std::function<void(const StepInputs& step, SequenceResult& result)>;

  explicit ScriptedDevice(Script script) : script_(std::move(script)) {}

  StepResult run(const StepInputs& inputs) override {
    StepResult result;
    result.step = inputs.step;
    try {
      for (const SequenceOrder& order : inputs.sequences) {
        add(inputs, order.rows.id, order.rows.slot, order.rows.admitted, order.rows.samples, result
        );
      }
      for (const ForkOrder& order : inputs.forks)
        add(inputs, order.fork.child, order.fork.child_slot, true, true, result);
    } catch (const std::exception& error) {
      result.sequences.clear();
      result.error = error.what();
      for (const SequenceOrder& order : inputs.sequences)
        set_ended(order.rows.slot, true);
    }
    return result;
  }

 private:
  void set_ended(int32_t slot, bool ended) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= ended_.size()) ended_.resize(index + 1);
    ended_[index] = ended;
  }

  void add(
      const StepInputs& step,
      sched::SequenceId id,
      int32_t slot,
      bool admitted,
      bool samples,
      StepResult& result
  ) {
    SequenceResult& sequence = result.sequences.emplace_back();
    sequence.id = id;
    if (admitted) set_ended(slot, false);
    if (!samples) return;
    if (ended_[static_cast<std::size_t>(slot)]) {
      sequence.skipped = true;
      return;
    }
    script_(step, sequence);
    set_ended(slot, sequence.end != DrawEnd::kGoesOn);
  }

  Script script_;
  std::vector<bool> ended_;  // [slots]
};

}  // namespace di::engine
