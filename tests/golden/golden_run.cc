#include "golden_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "sampling/verification.h"

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

/// A lone sequence whose newest rows can be taken back, on one thread.
class DraftingSequence {
 public:
  DraftingSequence(const model::Model& model, const ops::OpTable& ops, int64_t num_tokens)
      : model_(model),
        ops_(ops),
        cache_(cache::make_layout(model.config), ceil_div(num_tokens, cache::kBlockTokens), 1),
        state_(cache_) {
    state_.reserve_tokens(num_tokens);
  }

  /// The best token behind each of the newest `rows` tokens of `tokens`, which are computed.
  std::vector<int32_t> best_behind(std::span<const int32_t> tokens, int64_t rows) {
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
    std::vector<int32_t> tokens_behind;
    for (int64_t row = 0; row < rows; ++row) {
      const std::span values(logits.row(row), static_cast<std::size_t>(logits.dim(1)));
      tokens_behind.push_back(best(values, 1).front().id);
    }
    return tokens_behind;
  }

  /// What is drafted behind `tokens`, of which all but the last one were computed.
  std::vector<int32_t> draft(const std::vector<int32_t>& tokens, int64_t length) {
    const Arena::Scope scope(scratch_);
    const model::DraftStep step{
        .sequences = {{.tokens = tokens, .slot = state_.slot()}},
        .anchors = View<const int32_t, 1>(&tokens.back(), 1),
        .length = length};
    const auto drafts = model::draft(model_, step, cache_, ops_, exec_).tokens;
    return {drafts.data, drafts.data + length};
  }

 private:
  const model::Model& model_;
  const ops::OpTable& ops_;
  ThreadPool pool_{1};
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
  cache::KvCache cache_;
  cache::SequenceState state_;
};

}  // namespace

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

DraftedRun GoldenRunner::greedy_with_drafts(
    std::span<const int32_t> prompt, std::size_t num_tokens, int64_t length
) const {
  const auto end = std::ssize(prompt) + static_cast<int64_t>(num_tokens) + length;
  DraftingSequence sequence(model_, ops_, end);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  text.push_back(sequence.best_behind(text, std::ssize(prompt)).back());
  DraftedRun run;
  while (text.size() - prompt.size() < num_tokens) {
    const std::vector<int32_t> drafts = sequence.draft(text, length);
    std::vector<int32_t> rows = text;
    rows.insert(rows.end(), drafts.begin(), drafts.end());
    const std::vector<int32_t> draws = sequence.best_behind(rows, 1 + length);
    const int64_t accepted = sampling::accepted_drafts(drafts, draws);
    text.insert(text.end(), draws.begin(), draws.begin() + accepted + 1);
    ++run.steps;
    run.accepted += accepted;
  }
  const auto begin = text.begin() + std::ssize(prompt);
  run.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(num_tokens));
  return run;
}

std::vector<double> GoldenRunner::nll(std::span<const int32_t> tokens) const {
  Alone alone(model_, ops_, std::ssize(tokens));
  const std::vector<float> logits = alone.session.feed(tokens, model::LogitRows::kAll);
  return nll_of_prompt(logits, tokens, static_cast<std::size_t>(model_.config.vocab_size));
}

}  // namespace di::golden
