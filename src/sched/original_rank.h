// One rank of the original's policy: its queues, its blocks, and the two kinds of steps. Private to
// the model of that policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/math.h"
#include "cache/layout.h"
#include "sched/original_policy.h"
#include "sched/simulation_record.h"

namespace di::sched {

/// A sequence of that policy.
struct OriginalItem {
  std::size_t request = 0;
  int64_t arrival_call = 0;
  int64_t prompt = 0;
  int64_t wanted = 0;  // tokens until it ends
  int64_t outputs = 0;
  int64_t computed = 0;  // rows of the prompt, or of what is recomputed
  int64_t blocks = 0;
  int64_t seen_done_from = 0;  // the call whose schedule sees that it ended; 0: not ended
  int64_t last_call = 0;       // the last decode step it was part of
  int64_t last_gain = 0;       // and the tokens it drew there
  bool aborted = false;

  int64_t length() const { return prompt + outputs; }
  bool seen_done(int64_t call) const {
    return aborted || (seen_done_from > 0 && seen_done_from <= call);
  }
};

/// What a rank does in one call.
struct OriginalRows {
  int64_t decode = 0;
  int64_t prefill = 0;
};

/// The queues and blocks of one rank.
class OriginalRank {
 public:
  OriginalRank(
      const OriginalOptions& options, const SimulatedMachine& machine, SimulationRecord& record
  )
      : options_(options), machine_(machine), record_(record), free_(machine.num_blocks) {}

  std::deque<OriginalItem*> waiting;
  std::vector<OriginalItem*> running;

  /// True when the rank's vote is for a prompt step.
  bool wants_prefill(int64_t call) const {
    const auto total = static_cast<double>(machine_.num_blocks + 1);  // one block is never given
    const auto used = static_cast<double>(machine_.num_blocks - free_ + 1);
    if (used / total > 0.9 || waiting.empty()) return false;
    return is_ready(*waiting.front(), call);
  }

  /// The prompts of this call, each with whether it is complete; empty when nothing fits.
  std::vector<std::pair<OriginalItem*, bool>> schedule_prefill(int64_t call, OriginalRows& rows) {
    std::vector<std::pair<OriginalItem*, bool>> scheduled;
    while (!waiting.empty() && is_ready(*waiting.front(), call)) {
      OriginalItem& item = *waiting.front();
      if (item.aborted) {
        waiting.pop_front();
        continue;
      }
      const int64_t need = blocks_for(item.length() + options_.num_drafts);
      if (item.blocks == 0 && need > free_) break;
      if (std::ssize(running) + std::ssize(scheduled) >= options_.max_num_seqs) break;
      const int64_t left = item.length() - item.computed;
      const int64_t budget = options_.max_num_batched_tokens - rows.prefill;
      const int64_t chunk = std::min(left, budget);
      if (chunk == 0 || (chunk < left && !options_.chunked_prefill)) break;
      if (item.blocks == 0) take(item, need);
      item.computed += chunk;
      rows.prefill += chunk;
      waiting.pop_front();
      scheduled.emplace_back(&item, chunk == left);
      if (chunk < left) break;
    }
    return scheduled;
  }

  /// Everyone's decode row; those seen as ended leave, and their blocks return after the call.
  std::vector<OriginalItem*> schedule_decode(int64_t call, OriginalRows& rows) {
    for (OriginalItem* item : running) {
      if (item->seen_done(call)) returning_ += std::exchange(item->blocks, 0);
    }
    std::erase_if(running, [&](OriginalItem* item) { return item->seen_done(call); });
    std::erase_if(waiting, [](OriginalItem* item) {
      return item->aborted;
    });  // blocks are not returned

    std::deque<OriginalItem*> left(running.begin(), running.end());
    std::stable_sort(left.begin(), left.end(), [](const OriginalItem* a, const OriginalItem* b) {
      return a->outputs > b->outputs;
    });
    std::vector<OriginalItem*> scheduled;
    while (!left.empty()) {
      OriginalItem& item = *left.back();
      while (free_ == 0 && left.size() > 1) {
        preempt(*left.front(), call);
        left.pop_front();
      }
      left.pop_back();
      const int64_t need = blocks_for(item.length() + 2 * options_.num_drafts + 1);
      if (need > item.blocks && free_ == 0) {
        preempt(item, call);
        continue;
      }
      if (need > item.blocks) take(item, 1);
      rows.decode += options_.num_drafts + 1;
      scheduled.push_back(&item);
    }
    running = scheduled;
    return scheduled;
  }

  /// What returned during the call can be handed out from now on.
  void end_call() { free_ += std::exchange(returning_, 0); }

  /// Adds this rank's share of a result.
  void add_counts(SimulationResult& result) const {
    result.num_preemptions += num_preemptions_;
    result.num_recomputed_tokens += num_recomputed_tokens_;
    result.num_blocks_lost += machine_.num_blocks - free_;
    for (const OriginalItem* item : running)
      result.num_blocks_lost -= item->blocks;
    for (const OriginalItem* item : waiting)
      result.num_blocks_lost -= item->blocks;
  }

 private:
  static int64_t blocks_for(int64_t tokens) { return ceil_div(tokens, cache::kBlockTokens); }

  bool is_ready(const OriginalItem& item, int64_t call) const {
    return !options_.ready_one_step_late || item.arrival_call < call;
  }

  void take(OriginalItem& item, int64_t count) {
    item.blocks += count;
    free_ -= count;
  }

  // Tokens of a step that is still in flight are thrown away.
  void preempt(OriginalItem& item, int64_t call) {
    if (machine_.lag > 0 && item.last_call == call - 1) {
      item.outputs -= item.last_gain;
      if (std::exchange(item.seen_done_from, 0) > 0) record_.reopen(item.request);
    }
    num_recomputed_tokens_ += item.length();
    ++num_preemptions_;
    free_ += std::exchange(item.blocks, 0);
    item.computed = 0;
    waiting.push_front(&item);
  }

  const OriginalOptions& options_;
  const SimulatedMachine& machine_;
  SimulationRecord& record_;
  int64_t free_;
  int64_t returning_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_recomputed_tokens_ = 0;
};

}  // namespace di::sched
