// The model of the policy that this engine replaces; see original_policy.h.
#include "sched/original_policy.h"

#include <algorithm>
#include <utility>

#include "sched/original_rank.h"
#include "sched/simulation_record.h"

namespace di::sched {
namespace {

constexpr int64_t kEveryRankInterval = 70;
constexpr int64_t kAnyRankInterval = 100;
constexpr double kNever = std::numeric_limits<double>::infinity();

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
      for (OriginalRank& rank : ranks_)
        rank.end_call();
    }
    return finish();
  }

 private:
  void deliver() {
    for (; next_ < traffic_.size() && traffic_[next_].arrival <= now_; ++next_) {
      const SimulatedRequest& request = traffic_[next_];
      OriginalItem& item = items_[next_];
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
    const auto wants = [&](const OriginalRank& rank) { return rank.wants_prefill(call_); };
    return any ? std::any_of(ranks_.begin(), ranks_.end(), wants)
               : std::all_of(ranks_.begin(), ranks_.end(), wants);
  }

  bool prefill_step() {
    if (!votes_for_prefill()) return false;
    double seconds = 0;
    std::vector<std::vector<std::pair<OriginalItem*, bool>>> scheduled;
    bool has_rows = false;
    for (OriginalRank& rank : ranks_) {
      OriginalRows rows;
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

  void finish_chunk(OriginalRank& rank, OriginalItem& item, bool complete) {
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
    for (OriginalRank& rank : ranks_) {
      OriginalRows rows;
      for (OriginalItem* item : rank.schedule_decode(call_, rows))
        decoded_.push_back(item);
      seconds = std::max(seconds, machine_.seconds.of(std::max<int64_t>(rows.decode, 1), 0));
    }
    now_ += seconds;
    ++decode_steps_;
    for (OriginalItem* item : decoded_) {
      item->last_gain = 0;
      item->last_call = call_;
      if (item->seen_done_from == 0) draw(*item, options_.num_drafts + 1, call_ + 1 + machine_.lag);
    }
    decoded_.clear();
  }

  void draw(OriginalItem& item, int64_t count, int64_t seen_from) {
    item.last_gain = std::min(count, item.wanted - item.outputs);
    item.outputs += item.last_gain;
    record_.token(item.request, call_, now_);
    if (item.outputs < item.wanted) return;
    item.seen_done_from = seen_from;
    if (!record_.has_ended(item.request)) end(item, false);
  }

  void end(const OriginalItem& item, bool aborted) {
    record_.ended(item.request, call_, now_, aborted);
  }

  SimulationResult finish() {
    result_.requests = record_.take();
    result_.num_steps = call_;
    result_.seconds = now_;
    for (const RequestTimes& times : result_.requests)
      result_.num_unfinished += times.end_steps == 0;
    for (const OriginalRank& rank : ranks_)
      rank.add_counts(result_);
    return std::move(result_);
  }

  const Traffic& traffic_;
  const OriginalOptions options_;
  const SimulatedMachine machine_;
  SimulationRecord record_;
  SimulationResult result_;
  std::vector<OriginalItem> items_;
  std::vector<OriginalRank> ranks_;
  std::vector<OriginalItem*> decoded_;
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
