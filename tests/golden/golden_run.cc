#include "golden_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"

namespace di::golden {
namespace {

/// Everything a lone sequence needs, on one thread.
struct Alone {
  Alone(const model::Model& model, const ops::OpTable& ops, int64_t num_tokens)
      : exec(pool, ops.memory()),
        cache(
            cache::make_layout(model.config),
            ceil_div(num_tokens, cache::kBlockTokens),
            /*num_slots=*/1,
            ops.memory()
        ),
        session(model, cache, ops, *exec, {.draft_context = true}) {}

  ThreadPool pool{1};
  ops::OwnedExec exec;
  cache::KvCache cache;
  model::Session session;
};

/// The best logits, ties to the lower id.
std::vector<Scored> best(std::span<const float> logits, std::size_t count) {
  std::vector<Scored> order;
  for (std::size_t id = 0; id < logits.size(); ++id)
    order.push_back({static_cast<int32_t>(id), logits[id]});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), middle, order.end(), [](const Scored& a, const Scored& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  order.erase(middle, order.end());
  return order;
}

double minus_log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  const double sum =
      std::accumulate(logits.begin(), logits.end(), 0.0, [top](double total, float logit) {
        return total + std::exp(logit - top);
      });
  return std::log(sum) + top - logits[static_cast<std::size_t>(token)];
}

std::vector<double> nll_of_prompt(
    std::span<const float> logits, std::span<const int32_t> tokens, std::size_t vocab_size
) {
  std::vector<double> nll;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    nll.push_back(minus_log_probability(logits.subspan(i * vocab_size, vocab_size), tokens[i + 1]));
  return nll;
}

/// Drafts tokens as a request's sampler says, and keeps what they were drawn from.
class SamplerChooser : public model::DraftChooser {
 public:
  SamplerChooser(sampling::Sampler& sampler, const Drafting& how, int64_t anchor_position)
      : sampler_(sampler), how_(how), anchor_position_(anchor_position) {}

  void choose(
      ops::Exec&, int64_t, const View<const float, 2>& logits, const View<int32_t, 1>& tokens
  ) override {
    sampling::DraftChoice choice{.token = tokens(0)};
    if (how_.drawn) {
      const std::span row(logits.row(0), static_cast<std::size_t>(logits.dim(1)));
      choice =
          sampling::choose_draft(sampler_, how_.rule, {row, anchor_position_, drafts_}, scratch_);
    }
    tokens(0) = choice.token;
    drafts_.push_back(choice.token);
    laws_.push_back(std::move(choice.law));
  }

  const std::vector<int32_t>& drafts() const { return drafts_; }
  const std::vector<sampling::DraftLaw>& laws() const { return laws_; }

 private:
  sampling::Sampler& sampler_;
  const Drafting& how_;
  int64_t anchor_position_;
  std::vector<int32_t> drafts_;
  std::vector<sampling::DraftLaw> laws_;
  std::vector<double> scratch_;
};

}  // namespace

DraftingSequence::DraftingSequence(
    const model::Model& model, const ops::OpTable& ops, int64_t num_tokens
)
    : model_(model),
      ops_(ops),
      cache_(cache::make_layout(model.config), ceil_div(num_tokens, cache::kBlockTokens), 1),
      state_(cache_) {
  state_.reserve_tokens(num_tokens);
}

std::vector<float> DraftingSequence::logits_behind(std::span<const int32_t> tokens, int64_t rows) {
  const Arena::Scope scope(scratch_);
  model::Step step;
  step.sequences.push_back(
      {.tokens = tokens,
       .start = std::ssize(tokens) - rows,
       .slot = state_.slot(),
       .block_table = state_.block_table().data(),
       .logits = model::LogitRows::kAll}
  );
  const View<const float, 2> logits =
      forward(model_, step, cache_, ops_, exec_, {.draft_context = true}).logits;
  return {logits.data, logits.data + logits.size()};
}

void DraftingSequence::draft(
    const std::vector<int32_t>& tokens, int64_t length, model::DraftChooser& chooser
) {
  const Arena::Scope scope(scratch_);
  const model::DraftStep step{
      .sequences = {{.tokens = tokens, .slot = state_.slot()}},
      .anchors = View<const int32_t, 1>(&tokens.back(), 1),
      .length = length};
  model::draft(model_, step, cache_, ops_, exec_, {}, &chooser);
}

GreedyRun GoldenRunner::greedy(
    std::span<const int32_t> prompt, std::size_t steps, std::span<const int32_t> forced
) const {
  constexpr std::size_t kBest = 5;
  const auto vocab_size = static_cast<std::size_t>(model_.config.vocab_size);
  Alone alone(model_, ops_, std::ssize(prompt) + static_cast<int64_t>(steps));
  GreedyRun run;
  std::vector<float> logits = alone.session.feed(prompt, model::LogitRows::kAll);
  run.prompt_nll = nll_of_prompt(logits, prompt, vocab_size);
  while (run.tokens.size() < steps) {
    run.top.push_back(best(std::span(logits).last(vocab_size), kBest));
    run.tokens.push_back(run.top.back().front().id);
    const std::span<const int32_t> fed = forced.empty() ? std::span(run.tokens) : forced;
    if (run.tokens.size() < steps)
      logits = alone.session.feed(fed.subspan(run.tokens.size() - 1, 1));
  }
  return run;
}

std::vector<model::Drafts> GoldenRunner::drafts(
    std::span<const int32_t> prompt, std::span<const int32_t> outputs, std::size_t count
) const {
  Alone alone(model_, ops_, std::ssize(prompt) + std::ssize(outputs));
  alone.session.feed(prompt);
  std::vector<model::Drafts> drafts;
  for (std::size_t i = 0; i + 1 < outputs.size() && i < count; ++i) {
    alone.session.feed(outputs.subspan(i, 1));
    drafts.push_back(alone.session.draft(outputs[i + 1], model_.config.draft.dspark_block_size));
  }
  return drafts;
}

DraftedRun GoldenRunner::drafted(
    std::span<const int32_t> prompt, const sampling::SamplingParams& params, const Drafting& how
) const {
  const int64_t vocab_size = model_.config.vocab_size;
  DraftingSequence sequence(model_, ops_, std::ssize(prompt) + params.max_tokens + how.length + 1);
  const auto eos = static_cast<int32_t>(model_.config.tokens.eos_token_id);
  sampling::Sampler sampler(params, eos, params.seed.value_or(0), prompt, {});
  sampling::RowsScratch scratch(1);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  const std::vector<float> prefill = sequence.logits_behind(text, std::ssize(text));
  const std::span first = std::span(prefill).last(static_cast<std::size_t>(vocab_size));
  text.push_back(sampler.draw(first, std::ssize(text) - 1, scratch.front()).token);
  DraftedRun run;
  while (sampler.num_outputs() < params.max_tokens && !sampler.is_end(text.back())) {
    SamplerChooser chooser(sampler, how, std::ssize(text) - 1);
    sequence.draft(text, how.length, chooser);
    std::vector<int32_t> rows = text;
    rows.insert(rows.end(), chooser.drafts().begin(), chooser.drafts().end());
    const std::vector<float> logits = sequence.logits_behind(rows, 1 + how.length);
    const sampling::DraftedRows block{
        .logits = View<const float, 2>(logits.data(), 1 + how.length, vocab_size),
        .drafts = chooser.drafts(),
        .laws = chooser.laws(),
        .anchor_position = std::ssize(text) - 1};
    const auto verified = sampling::verify_drafts(sampler, how.rule, block, scratch);
    for (const sampling::Draw& draw : verified.draws)
      text.push_back(draw.token);
    ++run.steps;
    run.accepted += verified.accepted;
  }
  run.tokens.assign(text.begin() + std::ssize(prompt), text.end());
  if (std::ssize(run.tokens) > params.max_tokens)
    run.tokens.resize(static_cast<std::size_t>(params.max_tokens));
  return run;
}

std::vector<double> GoldenRunner::nll(std::span<const int32_t> tokens) const {
  Alone alone(model_, ops_, std::ssize(tokens));
  const std::vector<float> logits = alone.session.feed(tokens, model::LogitRows::kAll);
  return nll_of_prompt(logits, tokens, static_cast<std::size_t>(model_.config.vocab_size));
}

}  // namespace di::golden
