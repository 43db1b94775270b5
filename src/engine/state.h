// Engine::State: what an engine is made of. Private to the files engine.cc, drafts.cc and step.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/cache_size.h"
#include "engine/choice.h"
#include "engine/clock.h"
#include "engine/draft_profile.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "engine/recorder.h"
#include "engine/runner.h"
#include "engine/stats_window.h"
#include "engine/tracer.h"
#include "sched/draft_control.h"
#include "sched/scheduler.h"

namespace di::engine {

/// A taken request until its finished output.
struct LiveRequest {
  Request request;
  std::shared_ptr<const sampling::SamplingParams> sampling = {};
  sampling::VerificationRule rule = {};
  double arrival = 0;
  double first_token = 0;  ///< when it came; 0: not yet
  std::vector<std::unique_ptr<Choice>> choices = {};
  int64_t num_ended = 0;
  int64_t num_prompt_logprobs = 0;  ///< prompt tokens scored so far
  int64_t news_batch = -1;          ///< which batch of news holds its output,
  std::size_t news_index = 0;       ///< and where
};

/// A step between plan and results.
struct StepInFlight {
  sched::StepPlan plan = {};
  StepRecord record = {};  ///< what the plan alone says
  sched::DraftOrders drafts = {};
};

/// Members are in the order in which they are built; they end in reverse, the runner first.
struct Engine::State {
  EngineOptions options;
  int64_t context = 0;
  AdmissionLimits limits;
  model::Replay replay;
  CacheSize cache_size;
  int64_t available = 0;  ///< bytes of the backend's memory before anything was allocated
  const ops::OpTable* ops = nullptr;
  std::unique_ptr<ThreadPool> pool;
  LoadedModel loaded;
  std::unique_ptr<cache::KvCache> cache;
  std::unique_ptr<sched::Scheduler> scheduler;
  sched::DraftControlOptions draft_options;
  std::unique_ptr<sched::DraftControl> draft_control;  ///< nullptr: drafts are off
  std::vector<double> draft_temperatures;  ///< of the calibration beside the model; empty: 1
  std::string cost_folder;                 ///< where costs are kept; empty: nowhere
  DraftProfileKey cost_key = {};
  std::unordered_map<std::string, std::unique_ptr<LiveRequest>> requests;
  struct ChoiceOwner {
    LiveRequest* request = nullptr;
    Choice* choice = nullptr;
    bool has_drafts = false;  ///< the newest step planned with it makes drafts for the next one
    double draft_trust = 1;   ///< of the newest step planned with it: SequenceOrder::trust
  };
  std::unordered_map<sched::SequenceId, ChoiceOwner> choices;  ///< not ended
  sched::SequenceId next_sequence = 0;
  uint64_t num_requests = 0;  ///< taken since the start
  std::deque<StepInFlight> in_flight;
  std::unique_ptr<model::FlopsCounter> flops;
  std::unique_ptr<StatsWindow> window;
  std::optional<StepRecord> record;  ///< of the step that is being applied
  Tracer tracer;
  std::vector<int32_t> banned_tokens;  ///< that no request draws
  std::unique_ptr<Recorder> recorder;  ///< nullptr: nothing is recorded
  std::vector<Output> news = {};
  int64_t news_batch = 0;
  std::unique_ptr<Runner> runner;

  // step.cc
  bool launch();
  std::shared_ptr<const Admission> admission_of(sched::SequenceId id) const;
  bool scores_prompt(sched::SequenceId id) const;
  StepInputs orders(const sched::StepPlan& plan, const sched::DraftOrders& drafts);
  sched::StepPlan plan_step(double now);
  void collect();
  void apply(StepInFlight step, StepResult& result);
  StepRecord planned_record(const sched::StepPlan& plan) const;
  void retire(const StepInFlight& step, const StepResult& result);
  void apply_sequence(SequenceResult& result, int64_t step);
  bool apply_prompt_scores(const ChoiceOwner& owner, SequenceResult& result, int64_t step);
  void fail_all(const sched::StepPlan& plan, const std::string& error);
  std::vector<Output> take_news();

  // drafts.cc
  sched::DraftOrders order_drafts(const sched::StepPlan& plan, int64_t query_key_pairs);
  /// Whether a step's rows leave the drafter what it looks back on.
  bool drafts_look_back(const sched::StepPlan& plan, const sched::DraftOrders& orders) const;
  void apply_drafts(const StepInFlight& step, const StepResult& result);
  /// Gets to know what steps cost, and makes who decides about drafts by it.
  void start_drafts();
  void keep_costs() const;

  // engine.cc
  /// Checks everything that can be checked before a weight is read.
  std::unique_ptr<checkpoint::Checkpoint> preflight();
  /// Makes the parts that stand on the loaded model.
  void build(const MakeDevice& custom_device);
  void start_record(const std::string& folder);
  std::optional<Refusal> check(const Request& request) const;
  void take(Request request);
  Output& news_of(LiveRequest& request);
  ChoiceOutput& news_of(LiveRequest& request, int64_t choice);
  void end_choice(const ChoiceOwner& owner);
  void end_from_outside(sched::SequenceId id, FinishReason reason, const std::string& message);
};

}  // namespace di::engine
