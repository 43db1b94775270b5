// Opening and closing an engine, and what enters it.
#include "engine/engine.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "engine/admission.h"
#include "engine/cache_size.h"
#include "engine/calibration_file.h"
#include "engine/make_device.h"
#include "engine/state.h"

namespace di::engine {

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() {
  state_->keep_costs();
}

std::unique_ptr<Engine> Engine::open(
    const EngineOptions& options,
    const checkpoint::LoadProgress& progress,
    const MakeDevice& custom_device
) {
  validate(options);
  auto state = std::make_unique<State>();
  state->options = options;
  auto checkpoint = state->preflight();
  state->loaded = load(
      std::move(checkpoint),
      *state->ops,
      *state->pool,
      progress,
      {.drafts = state->draft_options.num_drafts > 0,
       .engram_on_host = state->cache_size.engram_on_host}
  );
  state->build(custom_device);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

std::unique_ptr<checkpoint::Checkpoint> Engine::State::preflight() {
  ops = &select_ops(options);
  pool = std::make_unique<ThreadPool>(options.threads);
  auto checkpoint = open_checkpoint(find_model(options.model), *pool);
  const ModelConfig& config = checkpoint->config();
  context = resolve_context(options, config);
  replay = resolve_replay(options, config);
  draft_options = resolve_drafts(options, config);
  if (draft_options.num_drafts > 0) {
    if (const auto calibration = read_calibration(checkpoint->folder()))
      draft_temperatures = calibration->for_length(draft_options.num_drafts);
  }
  limits = {
      .vocab_size = config.vocab_size,
      .context = context,
      .replay = options.replay,
      .max_queued_requests = options.max_queued_requests,
      .max_queued_tokens = options.max_queued_tokens};
  const StepLimits step_limits{
      .context = context,
      .max_rows = options.max_num_batched_tokens,
      .max_seqs = options.max_num_seqs,
      .num_slots = num_state_slots(options),
      .num_drafts = draft_options.num_drafts,
      .replay = replay};
  const auto measured = measure_steps(*checkpoint, *ops, *pool, step_limits);
  available = ops->memory().available();  // after the kernels have been loaded
  cache_size = plan_cache(
      options, *checkpoint, *ops, context, available, measured, draft_options.num_drafts
  );
  banned_tokens = resolve_banned_tokens(options, config);
  start_record(checkpoint->folder());
  return checkpoint;
}

void Engine::State::build(const MakeDevice& custom_device) {
  cache = std::make_unique<cache::KvCache>(
      cache::make_layout(loaded.model.config),
      cache_size.num_blocks,
      cache_size.num_slots,
      ops->memory()
  );
  scheduler = std::make_unique<sched::Scheduler>(
      sched::SchedulerOptions{
          .max_num_batched_tokens = options.max_num_batched_tokens,
          .max_num_seqs = options.max_num_seqs,
          .max_step_seconds = options.max_step_ms / 1e3,
          .patience_seconds = options.patience_seconds},
      cache->block_pool(),
      cache->slot_pool()
  );
  flops = std::make_unique<model::FlopsCounter>(loaded.model.config, replay);
  window = std::make_unique<StatsWindow>(
      StatsOptions{
          .max_num_batched_tokens = options.max_num_batched_tokens,
          .peak_flops = options.peak_flops},
      steady_seconds()
  );
  const model::MemoryPlan& plan = cache_size.plan;
  const DeviceParts parts{
      .model = loaded.model,
      .ops = *ops,
      .cache = *cache,
      .pool = *pool,
      .replay = replay,
      .context = context,
      .num_drafts = draft_options.num_drafts,
      .draft_temperatures = draft_temperatures,
      .scratch_bytes = ops->memory().is_host() ? 0 : plan.scratch + plan.logits,
      .max_results = options.max_num_batched_tokens + options.max_num_seqs};
  runner = std::make_unique<Runner>(custom_device ? custom_device(parts) : make_device(parts));
  start_drafts();
}

void Engine::State::start_record(const std::string& folder) {
  if (options.record.empty()) return;
  EngineOptions shaping = options;
  shaping.context = context;
  const RecordHeader header{
      .model = model_name(folder),
      .fingerprint = model_fingerprint(folder),
      .backend = ops->name,
      .isa = ops->isa,
      .has_content = options.record_content,
      .options = std::move(shaping)};
  recorder = std::make_unique<Recorder>(options.record, header, steady_seconds());
}

std::optional<Refusal> Engine::add(Request request) {
  std::vector<int32_t>& banned = request.sampling.banned_token_ids;
  banned.insert(banned.end(), state_->banned_tokens.begin(), state_->banned_tokens.end());
  std::optional<Refusal> refusal = state_->check(request);
  if (refusal) {
    state_->window->add_refusal();
  } else {
    state_->window->add_request();
    state_->take(std::move(request));
  }
  return refusal;
}

std::optional<Refusal> Engine::State::check(const Request& request) const {
  if (requests.contains(request.id)) {
    return Refusal{
        ErrorCode::kInvalidArgument,
        fmt::format("request id \"{}\" is that of a request which still runs", request.id)};
  }
  return check_request(request, limits, scheduler->counts());
}

void Engine::State::take(Request request) {
  auto live = std::make_unique<LiveRequest>();
  live->arrival = steady_seconds();
  const auto number = static_cast<int64_t>(num_requests++);
  live->rule = sampling::rule_for(
      request.sampling,
      request.sampling.seed.has_value() || recorder != nullptr,
      resolve_verification(options)
  );
  const uint64_t seed =
      request.sampling.seed.value_or(sampling::request_seed(options.seed, number));
  request.sampling.seed = seed;
  if (recorder != nullptr) recorder->add_request(request, live->arrival);
  live->sampling = std::make_shared<const sampling::SamplingParams>(request.sampling);
  live->request = std::move(request);

  const auto num_prompt = std::ssize(live->request.prompt_token_ids);
  const bool wants_text = live->request.detokenize || !live->sampling->stop.empty();
  const sched::SequenceId first = next_sequence;
  for (int64_t index = 0; index < live->sampling->n; ++index) {
    live->choices.push_back(std::make_unique<Choice>(ChoiceSpec{
        .id = next_sequence++,
        .index = index,
        .seed = sampling::choice_seed(seed, index),
        .num_prompt_tokens = num_prompt,
        .context = context,
        .sampling = live->sampling,
        .tokenizer = wants_text ? loaded.tokenizer.get() : nullptr}));
    Choice& choice = *live->choices.back();
    choices[choice.spec().id] = {live.get(), &choice};
    const double timeout = live->request.timeout_seconds;
    sched::SequenceSpec spec{
        .id = choice.spec().id,
        .fork_of = index == 0 ? sched::kNoSequence : first,
        .user = static_cast<int64_t>(std::hash<std::string>()(live->request.user)),
        .priority = live->request.priority,
        .arrival = live->arrival,
        .prompt_tokens = num_prompt,
        .max_tokens = choice.max_tokens(),
        .max_chunk_rows = options.chunk};
    if (timeout > 0) spec.deadline = live->arrival + timeout;
    scheduler->add(spec);
  }
  const std::string id = live->request.id;
  requests[id] = std::move(live);
}

bool Engine::abort(const std::string& request_id) {
  State& s = *state_;
  const auto found = s.requests.find(request_id);
  if (found == s.requests.end()) return false;
  std::vector<sched::SequenceId> ids;
  for (const auto& choice : found->second->choices) {
    if (!choice->ended()) ids.push_back(choice->spec().id);
  }
  for (const sched::SequenceId id : ids) {
    s.scheduler->finish(id);
    s.end_from_outside(id, FinishReason::kAborted, "");
  }
  return true;
}

Output& Engine::State::news_of(LiveRequest& request) {
  if (request.news_batch != news_batch) {
    request.news_batch = news_batch;
    request.news_index = news.size();
    Output& output = news.emplace_back();
    output.request_id = request.request.id;
    output.num_prompt_tokens = std::ssize(request.request.prompt_token_ids);
  }
  return news[request.news_index];
}

ChoiceOutput& Engine::State::news_of(LiveRequest& request, int64_t choice) {
  std::vector<ChoiceOutput>& outputs = news_of(request).choices;
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const ChoiceOutput& output) {
    return output.index == choice;
  });
  if (found != outputs.end()) return *found;
  ChoiceOutput& output = outputs.emplace_back();
  output.index = choice;
  return output;
}

void Engine::State::end_choice(const ChoiceOwner& owner) {
  LiveRequest& request = *owner.request;
  const double now = steady_seconds();
  const FinishedChoice finished{
      .reason = *owner.choice->finish_reason(),
      .prompt_tokens = owner.choice->spec().num_prompt_tokens,
      .output_tokens = std::ssize(owner.choice->outputs()),
      .ttft_seconds = request.first_token - request.arrival,
      .total_seconds = now - request.arrival};
  if (record) {
    record->finished.push_back(finished);
  } else {
    window->add_ending(now, finished);
  }
  if (draft_control != nullptr) draft_control->forget(owner.choice->spec().id);
  choices.erase(owner.choice->spec().id);
  if (++request.num_ended < std::ssize(request.choices)) return;
  news_of(request).finished = true;
  const std::string id = request.request.id;
  requests.erase(id);
}

void Engine::State::end_from_outside(
    sched::SequenceId id, FinishReason reason, const std::string& message
) {
  const auto found = choices.find(id);
  if (found == choices.end()) return;
  const ChoiceOwner owner = found->second;
  owner.choice->end(reason, message, news_of(*owner.request, owner.choice->spec().index));
  end_choice(owner);
}

Stats Engine::stats() const {
  Stats stats = state_->window->stats(steady_seconds(), state_->scheduler->counts());
  if (state_->draft_control == nullptr) return stats;
  const sched::DraftControlState drafts = state_->draft_control->state();
  if (drafts.cost_error > 0) stats.draft_cost_error = drafts.cost_error;
  if (drafts.advantage > 0) stats.draft_advantage = drafts.advantage;
  stats.num_draft_pauses = drafts.num_paused;
  stats.total_control_steps = drafts.num_control;
  return stats;
}

std::optional<sched::CostTable> Engine::draft_costs() const {
  if (state_->draft_options.mode != sched::DraftMode::kAdaptive) return std::nullopt;
  return state_->draft_control->costs().table();
}

void Engine::restart_stats() {
  state_->window->restart(steady_seconds());
}

void Engine::trace(const std::string& path, int64_t num_steps) {
  state_->tracer.start(path, num_steps);
}

bool Engine::has_work() const {
  return !state_->requests.empty() || !state_->news.empty() || !state_->in_flight.empty();
}

const EngineOptions& Engine::options() const {
  return state_->options;
}
const ModelConfig& Engine::config() const {
  return state_->loaded.model.config;
}
const text::Tokenizer& Engine::tokenizer() const {
  return *state_->loaded.tokenizer;
}
const ops::OpTable& Engine::ops() const {
  return *state_->ops;
}
const std::string& Engine::model_folder() const {
  return state_->loaded.checkpoint->folder();
}
const model::MemoryPlan& Engine::memory_plan() const {
  return state_->cache_size.plan;
}
int64_t Engine::memory_taken() const {
  return state_->available - state_->ops->memory().available();
}
const AdmissionLimits& Engine::admission_limits() const {
  return state_->limits;
}
int64_t Engine::context() const {
  return state_->context;
}
int64_t Engine::num_blocks() const {
  return state_->cache->block_pool().size();
}

}  // namespace di::engine
