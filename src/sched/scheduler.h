// Scheduler: which rows of which sequences run in the next step, and who holds the cache. Pure host
// logic over counts: it sees no token, no tensor, no clock of its own and no device.
//
// Steps are planned ahead of their results: plan(n + 1) may be called before retire(n). A sequence
// counts a token from the moment a step that samples it was planned, so the plan needs nothing from
// the device; what the device ended early arrives later through finish(). Drafts in verification
// count as tokens until the step retires and tells how many were accepted. Memory that a planned
// step may still touch returns to the pools when that step retires, never earlier.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "cache/pools.h"

namespace di::sched {

/// One choice of one request. Unique for the life of a scheduler.
using SequenceId = int64_t;
inline constexpr SequenceId kNoSequence = -1;

/// Limits and targets. Bounds are inclusive.
struct SchedulerOptions {
  int64_t max_num_batched_tokens = 2048;  ///< rows of one step at most
  int64_t max_num_seqs = 256;             ///< sequences that hold a slot at most
  double max_step_seconds = 0;            ///< target for steps that carry decode rows; 0: none
  int64_t min_prefill_rows = 16;  ///< prompt rows a step may always carry, whatever they cost
  double patience_seconds = 10;   ///< a request without a deadline is due this long after arrival
};

/// What the scheduler must know of a sequence.
struct SequenceSpec {
  SequenceId id = kNoSequence;
  SequenceId fork_of = kNoSequence;  ///< another choice of the same prompt, added before: shares
                                     ///< its blocks when its prompt is computed
  int64_t user = 0;                  ///< whose turn it is when users compete
  int priority = 0;                  ///< higher goes first, always
  double arrival = 0;                ///< seconds, of the caller's clock
  double deadline = std::numeric_limits<double>::infinity();  ///< to have ended by; same clock
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;      ///< of output; prompt_tokens + max_tokens fits the pool (checked)
  int64_t max_chunk_rows = 0;  ///< prompt rows a step at most; 0: no limit of its own
  bool ready = true;           ///< false: waits for set_ready(), and lets others pass
};

/// One sequence's rows in a step.
struct PlannedSequence {
  SequenceId id = kNoSequence;
  int32_t slot = -1;
  bool admitted = false;   ///< its first step since it took the slot: the device starts it afresh
  int64_t start = 0;       ///< position of the first row; of a decode row the last one that it can
                           ///< have: that of the newest token, if all drafts in flight are accepted
  int64_t num_rows = 0;    ///< without drafts
  int64_t num_drafts = 0;  ///< drafts that may be verified behind a decode row; it has the blocks
  int64_t prompt_tokens = 0;  ///< of the sequence's spec
  bool samples = false;       ///< a token is drawn from the last row
  bool is_prefill = false;    ///< rows of a prompt (or of what is recomputed), not one decode row
  std::vector<int32_t> new_blocks = {};  ///< appended to the sequence's block table by this step
};

/// A choice that begins behind another one's prompt: after the forward pass the device copies the
/// slot and the block that is only partly full, and draws the choice's first token from the row of
/// its parent.
struct Fork {
  SequenceId parent = kNoSequence;
  SequenceId child = kNoSequence;
  int32_t parent_slot = -1;
  int32_t child_slot = -1;
  std::vector<int32_t> blocks = {};  ///< the child's whole block table
  int32_t tail_from = -1;  ///< block to copy from; −1: the prompt ends on a block's edge
  int32_t tail_to = -1;
};

/// One step.
struct StepPlan {
  int64_t step = 0;                             ///< counts from 0
  std::vector<PlannedSequence> sequences = {};  ///< decode rows first
  std::vector<Fork> forks = {};
  std::vector<SequenceId> expired = {};    ///< passed their deadline and are gone
  std::vector<SequenceId> preempted = {};  ///< gave up their memory and wait to be recomputed
  int64_t num_decode_rows = 0;
  int64_t num_prefill_rows = 0;
  int64_t num_draft_rows = 0;  ///< that may be verified

  bool has_rows() const { return !sequences.empty(); }
  /// At most: fewer drafts may be verified.
  int64_t num_rows() const { return num_decode_rows + num_prefill_rows + num_draft_rows; }
};

/// Drafts of a sequence that the device will hold when the step begins that is being planned.
using NumDrafts = std::function<int64_t(SequenceId)>;

/// What became of one sequence's draws.
struct DrawOutcome {
  SequenceId id = kNoSequence;
  int64_t num_tokens = 0;  ///< tokens gained: at most 1 and the drafts that might be verified
  bool over = false;       ///< the device has ended the sequence: finish() is to come
};

/// What a step turned out to be.
struct StepOutcome {
  std::vector<DrawOutcome> draws = {};  ///< of each sequence, forks included, that was to draw
  double seconds = 0;                   ///< that it took; 0: unknown
  int64_t num_draft_rows = 0;           ///< drafts that were verified
};

/// Counts for statistics and admission.
struct SchedulerCounts {
  int64_t num_waiting = 0;     ///< without a slot
  int64_t num_running = 0;     ///< with a slot
  int64_t num_chunked = 0;     ///< with a slot, prompt not yet computed
  int64_t waiting_tokens = 0;  ///< tokens that waiting sequences have yet to compute
  int64_t blocks_used = 0;
  int64_t blocks_total = 0;
  int64_t slots_used = 0;
  int64_t slots_total = 0;
  int64_t num_preemptions = 0;  ///< since the start
  int64_t num_recomputed_tokens = 0;
};

/// Owns all scheduling state. docs/scheduler.md says why the policy is this one.
///
/// Policy. Rows of a step are given out in this order, up to max_num_batched_tokens:
/// 1. one row to every sequence that decodes;
/// 2. prompt rows, capped so that a step with decode rows keeps max_step_seconds by the measured
///    cost of steps. Higher priority first. Within a priority two lanes share the rows equally: the
///    *due* lane serves the sequence with the earliest due time (deadline, or arrival + patience),
///    those that gave way before; the *short* lane the user with the least service so far and of
///    that user's the sequence with the fewest rows left. So a long prompt keeps half of the prompt
///    rows once it is the oldest, and short ones pass it with the other half. What a lane leaves,
///    the other takes;
/// 3. drafts of those that decode, with what is left: the first draft of everybody before the
///    second of anybody. A draft takes a free block only while everybody who runs could have one.
/// A waiting sequence is admitted when a slot is free and the blocks that all who run are expected
/// to need at their peak fit the pool; lower priorities give way to it. The lanes take turns to go
/// first. When it is the due lane's turn and its first sequence is overdue, or gave way before, but
/// does not fit, nobody else is admitted until it does.
/// When a row needs a block and none is free, nor coming free with a step in flight, a sequence
/// gives up its memory and is computed again later: of the lowest priority the one that has lost
/// least, counting what it lost before. The first in line (highest priority, then earliest due)
/// never does, so it always goes on.
///
/// Thread: one at a time. The pools outlive it.
class Scheduler {
 public:
  /// Throws Error{kInvalidArgument} for options out of range.
  Scheduler(
      const SchedulerOptions& options, cache::BlockPool& block_pool, cache::SlotPool& slot_pool
  );
  ~Scheduler();

  /// Queues a sequence; it may run in the next step. The id is new, and the sequence fits the pool
  /// when it is alone: both checked.
  void add(const SequenceSpec& spec);

  /// Lets a sequence that was added unready run.
  void set_ready(SequenceId id);

  /// Ends a sequence now, in any state: it is in no later plan, and its memory returns when the
  /// last step that was planned with it retires. Unknown ids (ended before) are ignored.
  void finish(SequenceId id);

  /// Decides the next step. `now`: seconds of the clock of arrivals and deadlines. `num_drafts`:
  /// none when no step is to verify drafts.
  /// An empty plan (has_rows() false) is no step: it is not retired and its number is used again.
  StepPlan plan(double now, const NumDrafts& num_drafts = {});

  /// The oldest planned step is done. Draws of ids that have ended since are ignored.
  void retire(int64_t step, const StepOutcome& outcome);

  /// True while a sequence is queued or running, or a step is in flight.
  bool has_work() const;

  SchedulerCounts counts() const;

  /// Aborts the program when the ledger of blocks, slots, rows and steps does not add up.
  void check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace di::sched
