#include "sched/draft_world.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "sched/draft_budget.h"

namespace di::sched {
namespace {

double odds(double probability) {
  return std::log(probability / (1 - probability));
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Numbers that fill 0 to 1 evenly: any hundred sequences are much like any other hundred.
double evenly(SequenceId id, double step) {
  return std::fmod(static_cast<double>(id) * step, 1.0);
}

/// One that runs.
struct Running {
  SequenceId id = 0;
  double offset = 0;  // of its drafts' log-odds
  int64_t left = 0;   // tokens
  int64_t seen = 0;   // tokens before the newest
  bool begins = true;
  std::vector<double> accepts = {};  // probability of each draft at hand
  Survivals told = {};               // what the device believes of them
};

/// A step's outcome that is not known to the engine yet.
struct Pending {
  DraftOutcome outcome;
  std::vector<SequenceDrafts> sequences;
  std::vector<SequenceId> ended;
};

class Run {
 public:
  Run(const DraftWorld& world, const DraftControlOptions& options, uint32_t seed)
      : world_(world),
        options_(options),
        control_(options, DraftCosts(world.known.costs), world.known.verdicts),
        random_(seed) {}

  WorldResult until(double seconds) {
    while (now_ < seconds)
      step();
    while (!pending_.empty())
      settle();
    for (const SequenceId id : gone_)
      control_.forget(id);
    result_.seconds = now_;
    result_.state = control_.state();
    result_.learnt = control_.knowledge();
    result_.running = running_.size();
    result_.known = control_.num_sequences();
    return result_;
  }

 private:
  void fill() {
    const auto load = static_cast<std::size_t>(world_.load(now_));
    while (running_.size() > load) {
      gone_.push_back(running_.back().id);
      running_.pop_back();
    }
    while (running_.size() < load) {
      Running next{.id = ++last_id_};
      next.offset = world_.spread * odds(0.05 + 0.9 * evenly(last_id_, 0.6180339887)) / 1.6;
      next.left =
          world_.length / 2 +
          static_cast<int64_t>(static_cast<double>(world_.length) * evenly(last_id_, 0.7548776662));
      next.seen = world_.prompt;
      running_.push_back(next);
    }
  }

  std::vector<int64_t> choose(const DraftOrders& orders, const DraftStep& plan) {
    std::vector<int64_t> verified(running_.size(), 0);
    if (!orders.verifies()) return verified;
    if (orders.costs == nullptr) {
      for (std::size_t s = 0; s < running_.size(); ++s)
        verified[s] =
            std::min<int64_t>(orders.max_verified, static_cast<int64_t>(running_[s].told.size()));
      return verified;
    }
    std::vector<Survivals> told;
    for (std::size_t s = 0; s < running_.size(); ++s)
      told.push_back(believed(running_[s].told, orders.trust[s]));
    const int64_t drafting = std::count(orders.drafts.begin(), orders.drafts.end(), 1);
    const StepLoad load = orders.costs->load(plan.num_decoding + plan.prefill_rows, drafting);
    if (!world_.lagged) return drafts_by_early_stop(told, orders.costs->rows, load);
    const int64_t budget = draft_budget(earlier_, orders.costs->measured, load);
    earlier_ = told;
    return deal_drafts(told, budget);
  }

  void draft(Running& running) {
    double survival = 1;
    running.accepts.clear();
    running.told.clear();
    for (int64_t j = 0; j < options_.num_drafts; ++j) {
      const double x = odds(world_.quality(now_)) + running.offset + normal_(random_);
      running.accepts.push_back(sigmoid(x));
      running.told.push_back(survival *= sigmoid(x + world_.overconfidence));
    }
  }

  double seconds_of(double true_seconds) {
    const double factor = 1 + world_.noise * std::clamp(normal_(random_), -3.0, 3.0);
    return true_seconds * factor * (uniform_(random_) < world_.hiccups ? 10 : 1);
  }

  void step() {
    fill();
    std::vector<SequenceId> drawing;
    DraftStep plan;
    for (Running& running : running_) {
      drawing.push_back(running.id);
      plan.num_decoding += running.begins ? 0 : 1;
      plan.prefill_rows += running.begins ? world_.prompt : 0;
      plan.key_pairs += (running.begins ? world_.prompt : 1) * (running.seen + 1);
    }
    plan.drawing = drawing;
    const DraftOrders orders = control_.plan(plan);
    const std::vector<int64_t> verified = choose(orders, plan);

    Pending pending;
    pending.ended.swap(gone_);
    DraftOutcome& outcome = pending.outcome;
    outcome.phase = orders.phase;
    outcome.num_decoding = plan.num_decoding;
    outcome.shape = {
        .rows = plan.num_decoding + plan.prefill_rows, .prefill_rows = plan.prefill_rows};
    outcome.shape.key_pairs = plan.key_pairs;
    std::vector<Running> going_on;
    for (std::size_t s = 0; s < running_.size(); ++s) {
      Running& running = running_[s];
      SequenceDrafts drafts{.id = running.id, .verified = verified[s]};
      while (drafts.accepted < verified[s] &&
             uniform_(random_) < running.accepts[static_cast<std::size_t>(drafts.accepted)])
        ++drafts.accepted;
      for (int64_t j = 0; j < verified[s]; ++j)
        drafts.expected += running.told[static_cast<std::size_t>(j)];
      outcome.shape.rows += verified[s];
      outcome.shape.key_pairs += verified[s] * (running.seen + 1);
      result_.verified += drafts.verified;
      result_.accepted += drafts.accepted;
      result_.tokens += 1 + drafts.accepted;
      outcome.num_tokens += running.begins ? 0 : 1 + drafts.accepted;
      running.begins = false;
      running.seen += 1 + drafts.accepted;
      running.left -= 1 + drafts.accepted;
      running.accepts.clear();
      running.told.clear();
      const bool over = running.left <= 0;
      if (over) pending.ended.push_back(running.id);
      drafts.drafted = orders.drafts[s] != 0 && orders.phase != DraftPhase::kOff && !over;
      if (drafts.drafted) {
        draft(running);
        ++outcome.shape.drafting;
      }
      if (drafts.drafted || drafts.verified > 0) pending.sequences.push_back(drafts);
      if (!over) going_on.push_back(running);
    }
    running_ = std::move(going_on);

    const double backbone =
        seconds_of(world_.backbone(static_cast<double>(outcome.shape.rows), now_));
    double drafting = 0;
    if (outcome.shape.drafting > 0)
      drafting = seconds_of(
          world_.drafting_base + world_.drafting_each * static_cast<double>(outcome.shape.drafting)
      );
    outcome.seconds = {backbone + drafting, world_.tells_drafting ? drafting : 0};
    now_ += outcome.seconds.total;
    ++result_.steps;

    pending_.push_back(std::move(pending));
    if (static_cast<int64_t>(pending_.size()) > world_.lag) settle();
  }

  void settle() {
    Pending& oldest = pending_.front();
    oldest.outcome.sequences = oldest.sequences;
    control_.observe(oldest.outcome);
    for (const SequenceId id : oldest.ended)
      control_.forget(id);
    pending_.pop_front();
  }

  const DraftWorld& world_;
  DraftControlOptions options_;
  DraftControl control_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
  std::vector<Running> running_;
  std::vector<SequenceId> gone_;
  std::vector<Survivals> earlier_;
  std::deque<Pending> pending_;
  SequenceId last_id_ = 0;
  double now_ = 0;
  WorldResult result_;
};

}  // namespace

WorldResult run_world(
    const DraftWorld& world, const DraftControlOptions& options, double seconds, uint32_t seed
) {
  return Run(world, options, seed).until(seconds);
}

}  // namespace di::sched
