// What the engine's thread has to do with drafts: it lets a control decide who drafts and whether a
// step verifies, tells it what became of them, and keeps what steps cost from run to run.
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "engine/cost_profile.h"
#include "engine/environment.h"
#include "engine/record.h"
#include "engine/state.h"

namespace di::engine {
namespace {

/// That the start may take to measure what steps cost.
constexpr double kProfileSeconds = 1.0;

std::string folder_of(const std::string& option) {
  if (option == "none") return "";
  return option.empty() ? default_cache_folder() : option;
}

}  // namespace

void Engine::State::start_drafts() {
  if (draft_options.mode == sched::DraftMode::kOff) return;
  // A device that goes from step to step by itself stands still behind drafts.
  draft_options.control_steps = ops->memory().is_host() ? 1 : 2;
  sched::DraftCosts costs;
  std::vector<sched::DraftVerdict> verdicts;
  if (draft_options.mode == sched::DraftMode::kAdaptive) {
    cost_folder = folder_of(options.draft_costs);
    cost_key = {
        .model = model_fingerprint(loaded.checkpoint->folder()),
        .device = fmt::format("{} {} {}", ops->name, ops->isa, pool->num_threads()),
        .build = DI_VERSION,
        .limits = fmt::format(
            "{} {} {} {} {}",
            draft_options.num_drafts,
            options.max_num_seqs,
            options.max_num_batched_tokens,
            options.replay,
            options.engram_memory
        )};
    DraftProfile kept;
    if (!cost_folder.empty()) kept = load_draft_profile(cost_folder, cost_key);
    if (kept.knowledge) {
      costs = sched::DraftCosts(kept.knowledge->costs);
      verdicts = std::move(kept.knowledge->verdicts);
    } else {
      const ProfileRoom room{
          .limits =
              {.max_num_seqs = options.max_num_seqs,
               .num_drafts = draft_options.num_drafts,
               .max_num_batched_tokens = options.max_num_batched_tokens},
          .num_blocks = cache->block_pool().size(),
          .context = context,
          .vocab_size = loaded.model.config.vocab_size};
      profile_costs(*runner, room, kProfileSeconds, costs);
    }
  }
  draft_control = std::make_unique<sched::DraftControl>(draft_options, std::move(costs), verdicts);
}

void Engine::State::keep_costs() const {
  if (draft_control == nullptr || cost_folder.empty()) return;
  if (!draft_control->costs().is_empty())
    save_draft_profile(cost_folder, cost_key, draft_control->knowledge());
}

// Who drafts behind the step, and whether it verifies.
sched::DraftOrders Engine::State::order_drafts(
    const sched::StepPlan& plan, int64_t query_key_pairs
) {
  if (draft_control == nullptr) return {};
  std::vector<sched::SequenceId> drawing;
  sched::DraftStep step{.prefill_rows = plan.num_prefill_rows, .key_pairs = query_key_pairs};
  for (const sched::PlannedSequence& rows : plan.sequences) {
    if (rows.samples) drawing.push_back(rows.id);
    if (!rows.is_prefill) ++step.num_decoding;
  }
  for (const sched::Fork& fork : plan.forks)
    drawing.push_back(fork.child);
  step.drawing = drawing;
  sched::DraftOrders orders = draft_control->plan(step);
  for (std::size_t i = 0; i < drawing.size(); ++i) {
    ChoiceOwner& choice = choices.at(drawing[i]);
    choice.has_drafts = orders.drafts[i] != 0;
    choice.draft_trust = orders.trust[i];
  }
  return orders;
}

// While drafts rest, steps that only decode save the work. A control does not, or it would leave a
// hole, and prompts always do it, so that drafts are worth trying anew for whoever came meanwhile;
// a sequence whose window has gaps drafts badly until these are behind it, which its text does not
// depend on.
bool Engine::State::drafts_look_back(const sched::StepPlan& plan, const sched::DraftOrders& orders)
    const {
  if (draft_control == nullptr) return false;
  return !orders.rests || plan.num_prefill_rows > 0;
}

// What became of the drafts: for the statistics, and for whoever decides about the next ones.
void Engine::State::apply_drafts(const StepInFlight& step, const StepResult& result) {
  sched::DraftOutcome outcome{
      .phase = step.drafts.phase,
      .shape =
          {.rows = step.plan.num_decode_rows + step.plan.num_prefill_rows + result.num_draft_rows,
           .prefill_rows = step.plan.num_prefill_rows},
      .seconds = {result.typical_seconds(), result.draft_seconds}};
  int64_t draft_pairs = 0;
  std::vector<sched::SequenceDrafts> sequences;
  for (std::size_t i = 0; i < result.sequences.size(); ++i) {
    const SequenceResult& sequence = result.sequences[i];
    const bool is_decode = i < step.plan.sequences.size() && !step.plan.sequences[i].is_prefill;
    if (is_decode)  // as many keys as its newest token sees, or a few more
      draft_pairs += sequence.drafts.num_verified() * (step.plan.sequences[i].start + 1);
    const DraftResult& drafts = sequence.drafts;
    if (is_decode && !sequence.skipped) {
      ++outcome.num_decoding;
      outcome.num_tokens += std::ssize(sequence.draws);
      record->drafts.add(drafts.survivals, drafts.num_accepted, std::ssize(sequence.draws));
    }
    sequences.push_back(
        {.id = sequence.id,
         .verified = drafts.num_verified(),
         .accepted = drafts.num_accepted,
         .expected = std::accumulate(drafts.survivals.begin(), drafts.survivals.end(), 0.0),
         .drafted = sequence.drafted}
    );
    outcome.shape.drafting += sequence.drafted ? 1 : 0;
  }
  outcome.shape.key_pairs = record->query_key_pairs + draft_pairs;
  outcome.shape.experts = result.experts;
  outcome.sequences = sequences;
  if (result.error.empty()) draft_control->observe(outcome);
}

}  // namespace di::engine
