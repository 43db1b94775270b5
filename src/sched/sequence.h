// One sequence as the scheduler sees it: counts of rows and tokens, and what it holds. Private to
// the room.
#pragma once

#include <cstdint>
#include <vector>

#include "base/math.h"
#include "cache/layout.h"
#include "cache/pools.h"
#include "sched/scheduler.h"

namespace di::sched {

/// Where a sequence is. The last two hold a slot, the others nothing.
enum class Phase {
  kUnready,     ///< waits for set_ready()
  kForking,     ///< waits for the prompt of the sequence whose choice it is
  kSettling,    ///< preempted, and steps that it is part of are still in flight
  kWaiting,     ///< may be admitted
  kPrefilling,  ///< rows are left before it can draw
  kDecoding,    ///< the row of its last token is next
};

/// Counts run ahead of the device: what is planned counts as done.
struct Sequence {
  SequenceSpec spec;
  Phase phase = Phase::kWaiting;
  double due = 0;        ///< deadline, or arrival + patience
  int64_t outputs = 0;   ///< tokens drawn
  int64_t unsure = 0;    ///< of these, drafts that are being verified
  int64_t computed = 0;  ///< rows since it took its slot: positions 0 … computed − 1
  int64_t reached = 0;   ///< most rows it was to have while it decodes: drafts may be rejected
  int64_t lost = 0;      ///< rows computed before and given up, all times together
  int64_t recomputed_until = 0;  ///< positions below were computed before
  int64_t steps_in_flight = 0;   ///< planned with it and not yet retired
  int64_t last_step = -1;        ///< the last one planned with it
  int64_t shared_blocks = 0;     ///< of its first blocks, those that came with a fork
  bool over = false;             ///< the device ended it: finish() is to come
  cache::Holdings holdings;
  Sequence* parent = nullptr;    ///< while it waits for the prompt of that one
  std::vector<Sequence*> forks;  ///< choices that wait for its prompt

  int64_t num_tokens() const { return spec.prompt_tokens + outputs; }
  int64_t num_rows_left() const { return num_tokens() - computed; }
  int64_t num_blocks() const { return static_cast<int64_t>(holdings.blocks.size()); }
  bool holds_slot() const { return phase == Phase::kPrefilling || phase == Phase::kDecoding; }

  bool has_given_way() const { return lost > 0; }

  /// True when another row would serve nothing: all tokens are drawn, or the device ended it.
  bool is_complete() const { return over || outputs - unsure >= spec.max_tokens; }
  /// True when that may be so: it depends on drafts that are being verified.
  bool may_be_complete() const { return over || outputs >= spec.max_tokens; }

  /// True when the next row lies in a block that it does not hold yet.
  bool lacks_block() const { return computed >= num_blocks() * cache::kBlockTokens; }
};

/// The order of a queue in which nobody passes: higher priority, then due earlier, then the id.
struct BySeniority {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->spec.priority != b->spec.priority) return a->spec.priority > b->spec.priority;
    if (a->due != b->due) return a->due < b->due;
    return a->spec.id < b->spec.id;
  }
};

}  // namespace di::sched
