// The model of the policy that this engine replaces; see original_policy.h.
#include "sched/original_policy.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/math.h"
#include "cache/layout.h"
#include "sched/simulation_record.h"

namespace di::sched {
namespace {

constexpr int64_t kEveryRankInterval = 70;
constexpr int64_t kAnyRankInterval = 100;
constexpr double kWatermark = 0.9;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Item {
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

// What a rank does in one call.
struct Rows {
  int64_t decode = 0;
  int64_t prefill = 0;
};

class Rank {
 public:
  Rank(const OriginalOptions& options, const SimulatedMachine& machine, SimulationRecord& record)
      : options_(options), machine_(machine), record_(record), free_(machine.num_blocks) {}

  std::deque<Item*> waiting;
  std::vector<Item*> running;

  bool wants_prefill(int64_t call) const {
    const auto total = static_cast<double>(machine_.num_blocks + 1);  // one block is never given
    const auto used = static_cast<double>(machine_.num_blocks - free_ + 1);
    if (used / total > kWatermark || waiting.empty()) return false;
    return is_ready(*waiting.front(), call);
  }

  // The prompts of this call, each with whether it is complete; empty when nothing fits.
  std::vector<std::pair<Item*, bool>> schedule_prefill(int64_t call, Rows& rows) {
    std::vector<std::pair<Item*, bool>> scheduled;
    while (!waiting.empty() && is_ready(*waiting.front(), call)) {
      Item& item = *waiting.front();
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

  // Everyone's decode row; those seen as ended leave, and their blocks return after the call.
  std::vector<Item*> schedule_decode(int64_t call, Rows& rows) {
    for (Item* item : running) {
      if (item->seen_done(call)) returning_ += std::exchange(item->blocks, 0);
    }
    std::erase_if(running, [&](Item* item) { return item->seen_done(call); });
    std::erase_if(waiting, [](Item* item) { return item->aborted; });  // blocks are not returned

    std::deque<Item*> left(running.begin(), running.end());
    std::stable_sort(left.begin(), left.end(), [](const Item* a, const Item* b) {
      return a->outputs > b->outputs;
    });
    std::vector<Item*> scheduled;
    while (!left.empty()) {
      Item& item = *left.back();
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

  void end_call() { free_ += std::exchange(returning_, 0); }

  void add_counts(SimulationResult& result) const {
    result.num_preemptions += num_preemptions_;
    result.num_recomputed_tokens += num_recomputed_tokens_;
    result.num_blocks_lost += machine_.num_blocks - free_;
    for (const Item* item : running)
      result.num_blocks_lost -= item->blocks;
    for (const Item* item : waiting)
      result.num_blocks_lost -= item->blocks;
  }

 private:
  static int64_t blocks_for(int64_t tokens) { return ceil_div(tokens, cache::kBlockTokens); }

  bool is_ready(const Item& item, int64_t call) const {
    return !options_.ready_one_step_late || item.arrival_call < call;
  }

  void take(Item& item, int64_t count) {
    item.blocks += count;
    free_ -= count;
  }

  // Tokens of a step that is still in flight are thrown away.
  void preempt(Item& item, int64_t call) {
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

class Simulation {
 public:
  Simulation(
      const Traffic& traffic, const OriginalOptions& options, const SimulatedMachine& machine
  )
      : traffic_(traffic),
        options_(options),
        machine_(machine),
        record_(traffic),
        items_(traffic.size()) {
    for (int64_t rank = 0; rank < machine.num_ranks; ++rank)
      ranks_.emplace_back(options_, machine_, record_);
  }

  SimulationResult run() {
    while (call_ < machine_.max_steps) {
      deliver();
      if (record_.num_alive() == 0) {
        if (next_ == traffic_.size()) break;
        now_ = std::max(now_, traffic_[next_].arrival);
        continue;
      }
      ++call_;
      if (!prefill_step()) decode_step();
      for (Rank& rank : ranks_)
        rank.end_call();
    }
    return finish();
  }

 private:
  void deliver() {
    for (; next_ < traffic_.size() && traffic_[next_].arrival <= now_; ++next_) {
      const SimulatedRequest& request = traffic_[next_];
      Item& item = items_[next_];
      item.request = next_;
      item.arrival_call = call_ + 1;
      item.prompt = request.prompt_tokens;
      item.wanted = std::min(request.output_tokens, request.max_tokens);
      record_.arrived(next_, call_ + 1);
      ranks_[static_cast<std::size_t>(request.rank)].waiting.push_back(&item);
      if (request.abort_at < kNever) abortable_.push_back(next_);
    }
    std::erase_if(abortable_, [&](std::size_t request) {
      if (traffic_[request].abort_at > now_) return false;
      if (!record_.has_ended(request)) {
        items_[request].aborted = true;
        end(items_[request], true);
      }
      return true;
    });
  }

  bool votes_for_prefill() const {
    const bool any = decode_steps_ != 0 && decode_steps_ % kAnyRankInterval == 0;
    const bool every = decode_steps_ % kEveryRankInterval == 0;
    if (!any && !every) return false;
    const auto wants = [&](const Rank& rank) { return rank.wants_prefill(call_); };
    return any ? std::any_of(ranks_.begin(), ranks_.end(), wants)
               : std::all_of(ranks_.begin(), ranks_.end(), wants);
  }

  bool prefill_step() {
    if (!votes_for_prefill()) return false;
    double seconds = 0;
    std::vector<std::vector<std::pair<Item*, bool>>> scheduled;
    bool has_rows = false;
    for (Rank& rank : ranks_) {
      Rows rows;
      scheduled.emplace_back();
      if (rank.wants_prefill(call_)) scheduled.back() = rank.schedule_prefill(call_, rows);
      has_rows |= rows.prefill > 0;
      result_.num_prompt_rows += rows.prefill;
      seconds = std::max(seconds, machine_.seconds.of(0, std::max<int64_t>(rows.prefill, 1)));
    }
    if (!has_rows) return false;
    now_ += seconds;
    decode_steps_ = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const auto& [item, complete] : scheduled[rank])
        finish_chunk(ranks_[rank], *item, complete);
    }
    return true;
  }

  void finish_chunk(Rank& rank, Item& item, bool complete) {
    record_.prompt_rows(item.request, call_);
    if (!complete) {
      rank.waiting.push_front(&item);
      return;
    }
    rank.running.push_back(&item);
    draw(item, 1, call_ + 1);
  }

  void decode_step() {
    double seconds = 0;
    for (Rank& rank : ranks_) {
      Rows rows;
      for (Item* item : rank.schedule_decode(call_, rows))
        decoded_.push_back(item);
      seconds = std::max(seconds, machine_.seconds.of(std::max<int64_t>(rows.decode, 1), 0));
    }
    now_ += seconds;
    ++decode_steps_;
    for (Item* item : decoded_) {
      item->last_gain = 0;
      item->last_call = call_;
      if (item->seen_done_from == 0) draw(*item, options_.num_drafts + 1, call_ + 1 + machine_.lag);
    }
    decoded_.clear();
  }

  void draw(Item& item, int64_t count, int64_t seen_from) {
    item.last_gain = std::min(count, item.wanted - item.outputs);
    item.outputs += item.last_gain;
    record_.token(item.request, call_, now_);
    if (item.outputs < item.wanted) return;
    item.seen_done_from = seen_from;
    if (!record_.has_ended(item.request)) end(item, false);
  }

  void end(const Item& item, bool aborted) { record_.ended(item.request, call_, now_, aborted); }

  SimulationResult finish() {
    result_.requests = record_.take();
    result_.num_steps = call_;
    result_.seconds = now_;
    for (const RequestTimes& times : result_.requests)
      result_.num_unfinished += times.end_steps == 0;
    for (const Rank& rank : ranks_)
      rank.add_counts(result_);
    return std::move(result_);
  }

  const Traffic& traffic_;
  const OriginalOptions options_;
  const SimulatedMachine machine_;
  SimulationRecord record_;
  SimulationResult result_;
  std::vector<Item> items_;
  std::vector<Rank> ranks_;
  std::vector<Item*> decoded_;
  std::vector<std::size_t> abortable_;
  std::size_t next_ = 0;
  int64_t call_ = 0;
  int64_t decode_steps_ = 0;
  double now_ = 0;
};

}  // namespace

SimulationResult simulate_original(
    const Traffic& traffic, const OriginalOptions& options, const SimulatedMachine& machine
) {
  return Simulation(traffic, options, machine).run();
}

}  // namespace di::sched
