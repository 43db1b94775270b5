// Random steps: whatever arrives, ends, is cut short or runs out of memory, the ledger adds up
// after each step, everybody ends, and nothing is left behind.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "cache/layout.h"
#include "sched/scheduler.h"

namespace di::sched {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTotalSteps = 40'000;
#else
constexpr int64_t kTotalSteps = 1'000'000;
#endif

// One run: a random world, driven step by step.
class RandomRun {
 public:
  explicit RandomRun(uint32_t seed)
      : random_(seed),
        blocks_(below(2) == 0 ? 2 + below(8) : 10 + below(60)),
        slots_(1 + below(12)),
        lag_(below(3)),
        scheduler_(options(), blocks_, slots_) {}

  // Arrivals for `num_steps` calls of plan(), then until all is quiet.
  void run(int64_t num_steps) {
    for (int64_t i = 0; i < num_steps; ++i)
      turn(true);
    int64_t left = bound_of_drain();
    while (scheduler_.has_work()) {
      ASSERT_GT(left--, 0) << "the queue does not drain";
      turn(false);
    }
    EXPECT_TRUE(alive_.empty()) << "one terminal event each";
    EXPECT_EQ(blocks_.num_free(), blocks_.size());
    EXPECT_EQ(slots_.num_free(), slots_.size());
    EXPECT_EQ(scheduler_.counts().waiting_tokens, 0);
  }

 private:
  struct Request {
    SequenceSpec spec;
    int64_t length = 0;  // it draws its stop token as this one
    int64_t drawn = 0;
  };

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  SchedulerOptions options() {
    SchedulerOptions options;
    options.max_num_seqs = 1 + below(10);
    options.max_num_batched_tokens = options.max_num_seqs + below(below(2) == 0 ? 8 : 600);
    options.max_step_seconds = below(2) == 0 ? 0 : 0.02;
    options.min_prefill_rows = 1 + below(20);
    options.patience_seconds = static_cast<double>(below(4));
    return options;
  }

  void arrive() {
    const int64_t capacity = blocks_.size() * cache::kBlockTokens;
    SequenceSpec spec;
    spec.user = below(4);
    spec.priority = static_cast<int>(below(3));
    spec.arrival = now_;
    if (below(8) == 0) spec.deadline = now_ + static_cast<double>(below(5));
    spec.prompt_tokens = 1 + below(std::min<int64_t>(capacity - 1, below(3) == 0 ? 4000 : 300));
    if (below(4) == 0)
      spec.prompt_tokens = std::min(spec.prompt_tokens / 128 * 128 + 128, capacity - 1);
    spec.max_tokens = 1 + below(std::min<int64_t>(capacity - spec.prompt_tokens, 200));
    spec.max_chunk_rows = below(4) == 0 ? 1 + below(100) : 0;
    spec.ready = below(8) != 0;
    const int64_t num_choices = below(6) == 0 ? 1 + below(4) : 1;
    const SequenceId first = next_id_;
    for (int64_t choice = 0; choice < num_choices; ++choice) {
      spec.id = next_id_++;
      spec.fork_of = choice == 0 ? kNoSequence : first;
      scheduler_.add(spec);
      alive_[spec.id] = {spec, 1 + below(spec.max_tokens + 1), 0};
      if (!spec.ready) unready_.insert(spec.id);
    }
  }

  void end(SequenceId id) {
    ASSERT_EQ(alive_.erase(id), 1u) << "sequence " << id << " ends twice";
    unready_.erase(id);
  }

  SequenceId any_alive() {
    auto place = alive_.lower_bound(below(next_id_));
    return place == alive_.end() ? alive_.begin()->first : place->first;
  }

  void turn(bool with_arrivals) {
    now_ += 0.001 * static_cast<double>(1 + below(30));
    if (with_arrivals && below(3) == 0 && alive_.size() < 60) arrive();
    if (!alive_.empty() && below(25) == 0) {
      const SequenceId id = any_alive();
      scheduler_.finish(id);
      end(id);
    }
    while (!unready_.empty() && (!with_arrivals || below(10) == 0)) {
      scheduler_.set_ready(*unready_.begin());
      unready_.erase(unready_.begin());
    }
    plan();
    const bool must_retire = std::ssize(in_flight_) > lag_;
    while (!in_flight_.empty() && (must_retire || idle_ || below(4) == 0)) {
      retire();
      if (std::ssize(in_flight_) <= lag_) break;
    }
    scheduler_.check_integrity();
  }

  void plan() {
    StepPlan plan = scheduler_.plan(now_);
    scheduler_.check_integrity();
    for (const SequenceId id : plan.expired)
      end(id);
    idle_ = !plan.has_rows();
    if (idle_) {
      const bool may_run = std::any_of(alive_.begin(), alive_.end(), [&](const auto& entry) {
        return !unready_.contains(entry.first) && !unready_.contains(entry.second.spec.fork_of);
      });
      ASSERT_FALSE(may_run && in_flight_.empty()) << "work is ready and nothing runs";
      return;
    }
    check(plan);
    in_flight_.push_back(std::move(plan));
  }

  void check(const StepPlan& plan) {
    std::set<SequenceId> seen;
    int64_t num_rows = 0;
    for (const PlannedSequence& planned : plan.sequences) {
      EXPECT_TRUE(alive_.contains(planned.id));
      EXPECT_TRUE(seen.insert(planned.id).second);
      EXPECT_GT(planned.num_rows, 0);
      EXPECT_FALSE(unready_.contains(planned.id));
      num_rows += planned.num_rows;
      auto& known = computed_[planned.id];
      if (planned.admitted) {
        EXPECT_EQ(planned.start, 0);
        known = 0;
      }
      EXPECT_EQ(planned.start, known);
      known += planned.num_rows;
    }
    for (const Fork& fork : plan.forks) {
      EXPECT_TRUE(seen.insert(fork.child).second);
      computed_[fork.child] = alive_.at(fork.child).spec.prompt_tokens;
    }
    EXPECT_EQ(num_rows, plan.num_decode_rows + plan.num_prefill_rows);
    EXPECT_LE(plan.num_decode_rows + plan.num_prefill_rows, 10 + 600);
  }

  void retire() {
    const StepPlan step = std::move(in_flight_.front());
    in_flight_.pop_front();
    std::vector<DrawOutcome> outcomes;
    for (const PlannedSequence& planned : step.sequences)
      if (planned.samples) draw(planned.id, outcomes);
    for (const Fork& fork : step.forks)
      draw(fork.child, outcomes);
    const auto rows = static_cast<double>(step.num_decode_rows + step.num_prefill_rows);
    scheduler_.retire(step.step, outcomes, 0.001 + 0.0001 * rows);
    scheduler_.check_integrity();
    for (const DrawOutcome& outcome : outcomes) {
      const auto entry = alive_.find(outcome.id);
      if (entry == alive_.end() || entry->second.drawn < entry->second.length) continue;
      scheduler_.finish(outcome.id);
      end(outcome.id);
    }
  }

  void draw(SequenceId id, std::vector<DrawOutcome>& outcomes) {
    const auto entry = alive_.find(id);
    const bool ended = entry != alive_.end() && entry->second.drawn >= entry->second.length;
    if (entry != alive_.end()) {
      ++entry->second.drawn;
      entry->second.length = std::min(entry->second.length, entry->second.spec.max_tokens);
    }
    outcomes.push_back({id, ended ? 0 : 1});
  }

  // Everybody's rows, one at a time and with recomputation, several times over.
  int64_t bound_of_drain() const {
    int64_t rows = 0;
    for (const auto& [id, request] : alive_)
      rows += request.spec.prompt_tokens + request.spec.max_tokens;
    return 1000 + 4 * rows;
  }

  std::mt19937 random_;
  cache::BlockPool blocks_;
  cache::SlotPool slots_;
  int64_t lag_;
  Scheduler scheduler_;
  double now_ = 0;
  bool idle_ = false;
  SequenceId next_id_ = 0;
  std::map<SequenceId, Request> alive_;
  std::map<SequenceId, int64_t> computed_;
  std::set<SequenceId> unready_;
  std::deque<StepPlan> in_flight_;
};

TEST(Scheduler, ManyRandomStepsKeepTheLedgerAndEndEverything) {
  constexpr int64_t kStepsOfRun = 500;
  for (uint32_t seed = 0; seed < kTotalSteps / kStepsOfRun; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun(seed).run(kStepsOfRun);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace di::sched
