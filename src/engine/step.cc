// The phases of a step: plan, orders, launch, collect, apply, news. With asynchronous scheduling
// the last three handle the step before the one that was launched; nothing else changes.
#include <utility>

#include "base/trace.h"
#include "engine/state.h"

namespace di::engine {

std::vector<Output> Engine::step() {
  State& s = *state_;
  const bool launched = s.launch();
  const std::size_t may_stay = launched && s.options.async_scheduling ? 1 : 0;
  while (s.in_flight.size() > may_stay)
    s.collect();
  return s.take_news();
}

std::vector<Output> Engine::flush() {
  State& s = *state_;
  while (!s.in_flight.empty())
    s.collect();
  return s.take_news();
}

bool Engine::State::launch() {
  const double start = steady_seconds();
  sched::StepPlan plan;
  {
    const TraceScope scope(tracer.recorder(), tracer.track(), "plan");
    plan = plan_step(start);
  }
  for (const sched::SequenceId id : plan.expired)
    end_from_outside(id, FinishReason::kTimeout, "the request's timeout_seconds have passed");
  if (!plan.has_rows()) return false;
  StepRecord planned = planned_record(plan);
  sched::DraftOrders drafts = order_drafts(plan, planned.query_key_pairs);
  {
    const TraceScope scope(
        tracer.recorder(),
        tracer.track(),
        "orders",
        {{"step", plan.step}, {"rows", plan.num_rows()}}
    );
    runner->submit(orders(plan, drafts));
  }
  planned.plan_seconds = steady_seconds() - start;
  in_flight.push_back({std::move(plan), std::move(planned), std::move(drafts)});
  return true;
}

sched::StepPlan Engine::State::plan_step(double now) {
  if (draft_control == nullptr) return scheduler->plan(now);
  return scheduler->plan(now, [this](sched::SequenceId id) {
    return choices.at(id).has_drafts ? draft_options.num_drafts : 0;
  });
}

std::shared_ptr<const Admission> Engine::State::admission_of(sched::SequenceId id) const {
  const ChoiceOwner& owner = choices.at(id);
  auto admission = std::make_shared<Admission>();
  const std::vector<int32_t>& prompt = owner.request->request.prompt_token_ids;
  const std::vector<int32_t>& outputs = owner.choice->outputs();
  admission->sampling = owner.request->sampling;
  admission->seed = owner.choice->spec().seed;
  admission->rule = owner.request->rule;
  admission->tokens.reserve(prompt.size() + outputs.size());
  admission->tokens = prompt;
  admission->tokens.insert(admission->tokens.end(), outputs.begin(), outputs.end());
  admission->num_prompt_tokens = std::ssize(prompt);
  admission->scores_prompt = scores_prompt(id);
  admission->num_prompt_logprobs = owner.request->num_prompt_logprobs;
  return admission;
}

StepInputs Engine::State::orders(const sched::StepPlan& plan, const sched::DraftOrders& drafts) {
  StepInputs inputs{
      .step = plan.step,
      .draft_context = drafts_look_back(plan, drafts),
      .max_verified = drafts.verifies() ? drafts.max_verified : 0,
      .costs = drafts.costs,
      .trace = tracer.shared()};
  const auto drafts_behind = [&](sched::SequenceId id) {
    return draft_control != nullptr && choices.at(id).has_drafts;
  };
  inputs.sequences.reserve(plan.sequences.size());
  for (const sched::PlannedSequence& rows : plan.sequences) {
    inputs.sequences.push_back(
        {rows,
         rows.admitted ? admission_of(rows.id) : nullptr,
         rows.samples && drafts_behind(rows.id),
         choices.at(rows.id).draft_trust}
    );
  }
  for (const sched::Fork& fork : plan.forks)
    inputs.forks.push_back({fork, admission_of(fork.child), drafts_behind(fork.child)});
  return inputs;
}

void Engine::State::collect() {
  StepResult result;
  {
    const TraceScope scope(tracer.recorder(), tracer.track(), "wait");
    result = runner->collect();
  }
  StepInFlight step = std::move(in_flight.front());
  in_flight.pop_front();
  {
    const TraceScope scope(tracer.recorder(), tracer.track(), "apply", {{"step", result.step}});
    apply(std::move(step), result);
  }
  if (options.check_integrity) {
    const TraceScope scope(tracer.recorder(), tracer.track(), "check_integrity");
    scheduler->check_integrity();
  }
  tracer.step_done();
}

void Engine::State::apply(StepInFlight step, StepResult& result) {
  const double start = steady_seconds();
  record = std::move(step.record);
  record->step_seconds = result.seconds;
  record->expert_max = result.expert_max;
  record->expert_mean = result.expert_mean;
  if (!result.error.empty()) fail_all(step.plan, result.error);
  retire(step, result);
  if (draft_control != nullptr) apply_drafts(step, result);
  news.reserve(news.size() + result.sequences.size());
  for (SequenceResult& sequence : result.sequences)
    apply_sequence(sequence, result.step);
  record->time = steady_seconds();
  record->apply_seconds = record->time - start;
  window->add_step(std::move(*record));
  record.reset();
}

void Engine::State::retire(const StepInFlight& step, const StepResult& result) {
  sched::StepOutcome outcome{
      .draws = {}, .seconds = result.typical_seconds(), .num_draft_rows = result.num_draft_rows};
  outcome.draws.reserve(result.sequences.size());
  for (std::size_t i = 0; i < result.sequences.size(); ++i) {
    const SequenceResult& sequence = result.sequences[i];
    const bool is_fork = i >= step.plan.sequences.size();
    if (!is_fork && !step.plan.sequences[i].samples) continue;
    const bool is_over = sequence.skipped || sequence.end == DrawEnd::kNotFinite;
    outcome.draws.push_back({sequence.id, std::ssize(sequence.draws), is_over});
  }
  scheduler->retire(result.step, outcome);
}

void Engine::State::fail_all(const sched::StepPlan& plan, const std::string& error) {
  const auto fail = [&](sched::SequenceId id) {
    scheduler->finish(id);
    end_from_outside(id, FinishReason::kFailed, "the step failed: " + error);
  };
  for (const sched::PlannedSequence& rows : plan.sequences)
    fail(rows.id);
  for (const sched::Fork& fork : plan.forks)
    fail(fork.child);
}

void Engine::State::apply_sequence(SequenceResult& result, int64_t step) {
  const auto found = choices.find(result.id);
  if (found == choices.end()) return;
  const ChoiceOwner owner = found->second;
  LiveRequest& request = *owner.request;
  if (!result.prompt_scores.empty() && !apply_prompt_scores(owner, result, step)) return;
  if (result.draws.empty() && result.end != DrawEnd::kNotFinite) return;
  if (!result.draws.empty() && request.first_token == 0) {
    request.first_token = steady_seconds();
    record->ttft_seconds.push_back(request.first_token - request.arrival);
  }
  const int64_t before = std::ssize(owner.choice->outputs());
  news_of(request).step = step;
  owner.choice->take(result, news_of(request, owner.choice->spec().index));
  record->num_output_tokens += std::ssize(owner.choice->outputs()) - before;
  if (!owner.choice->ended()) return;
  scheduler->finish(result.id);
  end_choice(owner);
}

bool Engine::State::apply_prompt_scores(
    const ChoiceOwner& owner, SequenceResult& result, int64_t step
) {
  LiveRequest& request = *owner.request;
  for (sampling::Draw& score : result.prompt_scores) {
    if (!score.finite) {
      scheduler->finish(result.id);
      end_from_outside(result.id, FinishReason::kFailed, "the logits of the prompt are not finite");
      return false;
    }
    Output& output = news_of(request);
    output.step = step;
    output.prompt_logprobs.push_back({score.token, score.logprob, std::move(score.top)});
    ++request.num_prompt_logprobs;
  }
  return true;
}

bool Engine::State::scores_prompt(sched::SequenceId id) const {
  const ChoiceSpec& choice = choices.at(id).choice->spec();
  return choice.sampling->prompt_logprobs && choice.index == 0;
}

StepRecord Engine::State::planned_record(const sched::StepPlan& plan) const {
  StepRecord planned;
  planned.num_prefill_rows = plan.num_prefill_rows;
  planned.num_decode_rows = plan.num_decode_rows;
  planned.num_preempted = std::ssize(plan.preempted);
  for (const sched::PlannedSequence& rows : plan.sequences) {
    const bool scores = rows.start < rows.prompt_tokens - 1 && scores_prompt(rows.id);
    planned.add_keys(rows.start, rows.num_rows);
    planned.flops += flops->count(
        {.start = rows.start,
         .num_rows = rows.num_rows,
         .prompt_length = rows.prompt_tokens,
         .rows_with_logits = scores ? rows.num_rows : int64_t{rows.samples}}
    );
  }
  for (const sched::Fork& fork : plan.forks)
    planned.num_cached_tokens += choices.at(fork.child).choice->spec().num_prompt_tokens;
  return planned;
}

std::vector<Output> Engine::State::take_news() {
  ++news_batch;
  if (recorder != nullptr && !news.empty()) recorder->add_news(news, steady_seconds());
  return std::exchange(news, {});
}

}  // namespace di::engine
