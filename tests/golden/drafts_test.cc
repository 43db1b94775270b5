// Drafts of the default model for requests that are drawn at random: block verification keeps the
// law of its texts, by many draws from its own logits; and how many drafts stay.
#include <cmath>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "golden_run.h"

namespace di::golden {
namespace {

using Tokens = std::vector<int32_t>;
using sampling::Draw;
using sampling::Sampler;
using sampling::SamplingParams;
using sampling::VerificationRule;

const ops::OpTable& cpu() {
  return ops::cpu_ops(best_isa(detect_cpu()));
}

const verify::LoadedModel& default_model() {
  static ThreadPool pool;
  static const verify::LoadedModel model = verify::load_for_verify(DI_SEEDLING, cpu(), pool);
  return model;
}

Tokens joined(Tokens text, const Tokens& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

/// Drafts given tokens and keeps the logits that the last one was chosen from.
class GivenDrafts : public model::DraftChooser {
 public:
  explicit GivenDrafts(const Tokens& tokens) : tokens_(tokens) {}

  void choose(
      ops::Exec&, int64_t index, const View<const float, 2>& logits, const View<int32_t, 1>& tokens
  ) override {
    const auto at = static_cast<std::size_t>(index);
    if (at < tokens_.size()) tokens(0) = tokens_[at];
    last.assign(logits.data, logits.data + logits.size());
  }

  std::vector<float> last;

 private:
  const Tokens& tokens_;
};

/// The model's own logits behind a text and few tokens more, each computed once.
class OwnLogits {
 public:
  explicit OwnLogits(const Tokens& text)
      : text_(text), sequence_(default_model().model, cpu(), std::ssize(text) + 8) {
    sequence_.logits_behind(text_, std::ssize(text_));
  }

  /// The target's behind the text and `more`.
  const std::vector<float>& target(const Tokens& more) {
    const std::lock_guard lock(mutex_);
    const auto [row, is_new] = target_.try_emplace(more);
    if (is_new) {
      const auto rows = sequence_.logits_behind(joined(text_, more), 1 + std::ssize(more));
      row->second.assign(rows.end() - default_model().model.config.vocab_size, rows.end());
    }
    return row->second;
  }

  /// The drafter's behind the text's last token as the anchor and the drafts `before`.
  const std::vector<float>& drafter(const Tokens& before) {
    const std::lock_guard lock(mutex_);
    const auto [row, is_new] = drafter_.try_emplace(before);
    if (is_new) {
      GivenDrafts given(before);
      sequence_.draft(text_, std::ssize(before) + 1, given);
      row->second = given.last;
    }
    return row->second;
  }

  int64_t anchor_position() const { return std::ssize(text_) - 1; }

 private:
  std::mutex mutex_;
  Tokens text_;
  DraftingSequence sequence_;
  std::map<Tokens, std::vector<float>> target_, drafter_;
};

Sampler sampler_of(const SamplingParams& params, uint64_t seed) {
  const auto eos = static_cast<int32_t>(default_model().model.config.tokens.eos_token_id);
  return {params, eos, seed, {}, {}};
}

/// The first `length` tokens of a text: `num_drafts` drafts, verified, and then draws without any.
Tokens drawn_text(OwnLogits& logits, Sampler sampler, std::size_t num_drafts, std::size_t length) {
  sampling::RowsScratch scratch(1);
  Tokens drafts;
  std::vector<sampling::DraftLaw> laws;
  std::vector<float> rows = logits.target({});
  for (std::size_t i = 0; i < num_drafts; ++i) {
    auto choice = sampling::choose_draft(
        sampler,
        VerificationRule::kBlock,
        {logits.drafter(drafts), logits.anchor_position(), drafts},
        scratch.front()
    );
    drafts.push_back(choice.token);
    laws.push_back(std::move(choice.law));
    const std::vector<float>& row = logits.target(drafts);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const auto num_rows = std::ssize(drafts) + 1;
  const sampling::DraftedRows block{
      .logits = View<const float, 2>(rows.data(), num_rows, std::ssize(rows) / num_rows),
      .drafts = drafts,
      .laws = laws,
      .anchor_position = logits.anchor_position()};
  Tokens text;
  for (const Draw& draw :
       sampling::verify_drafts(sampler, VerificationRule::kBlock, block, scratch).draws)
    text.push_back(draw.token);
  while (text.size() < length && !sampler.is_end(text.back())) {
    const int64_t position = logits.anchor_position() + std::ssize(text);
    text.push_back(sampler.draw(logits.target(text), position, scratch.front()).token);
  }
  text.resize(std::min(text.size(), length));
  return text;
}

/// Adds the texts of `length` tokens that are expected at least five times in `draws` draws.
void add_expected(
    OwnLogits& logits,
    Sampler& sampler,
    const Tokens& so_far,
    std::size_t length,
    double draws,
    std::map<Tokens, double>& expected
) {
  if (draws < 5) return;
  if (so_far.size() == length || (!so_far.empty() && sampler.is_end(so_far.back()))) {
    expected[so_far] = draws;
    return;
  }
  std::vector<double> storage;
  sampling::SampledRow row = sampler.row(logits.target(so_far), storage);
  const auto all = static_cast<double>(row.law.mass());
  for (const sampling::TokenMass& next : row.law.best(1000)) {
    sampling::CountedAhead counted(sampler);
    counted.count(next.token);
    const double share = static_cast<double>(next.mass) / all;
    add_expected(logits, sampler, joined(so_far, {next.token}), length, draws * share, expected);
  }
}

/// How far `num_draws` texts lie from their law, in standard deviations of chi-square; rare ones
/// count together.
double deviation_of_texts(
    OwnLogits& logits, const SamplingParams& params, std::size_t num_drafts, int64_t num_draws
) {
  const std::size_t length = num_drafts + 1;
  std::map<Tokens, double> expected;
  Sampler sampler = sampler_of(params, 0);
  add_expected(logits, sampler, {}, length, static_cast<double>(num_draws), expected);
  std::map<Tokens, double> counts;
  std::mutex mutex;
  ThreadPool pool;
  pool.parallel_for(num_draws, 1000, [&](int64_t begin, int64_t end) {
    std::map<Tokens, double> found;
    for (int64_t seed = begin; seed < end; ++seed) {
      const auto own = static_cast<uint64_t>(seed);
      ++found[drawn_text(logits, sampler_of(params, own), num_drafts, length)];
    }
    const std::lock_guard lock(mutex);
    for (const auto& [text, count] : found)
      counts[expected.contains(text) ? text : Tokens()] += count;
  });
  double rare = static_cast<double>(num_draws);
  for (const auto& [text, mean] : expected)
    rare -= mean;
  if (rare >= 5) expected[{}] = rare;
  double chi_square = 0;
  for (const auto& [text, mean] : expected)
    chi_square += (counts[text] - mean) * (counts[text] - mean) / mean;
  const double freedom = static_cast<double>(expected.size()) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

/// A prompt of the golden file with the beginning of its answer.
Tokens begun_answer(std::size_t index, std::ptrdiff_t answered) {
  const Json golden = read_golden("golden.json").at("cases").as_array()[index];
  const Tokens answer = integers<int32_t>(golden.at("output_ids"));
  return joined(
      integers<int32_t>(golden.at("prompt_ids")), {answer.begin(), answer.begin() + answered}
  );
}

// Where drafter and target disagree in part, so that a wrong remainder shows: with nine tenths of a
// draft's share taken out of it, these fail by far.
TEST(BlockDraftsOfTheDefaultModel, KeepTheLawOfItsTexts) {
  OwnLogits logits(begun_answer(10, 2));
  EXPECT_LT(deviation_of_texts(logits, {.max_tokens = 64}, 1, 100'000), 3.5);
}

TEST(BlockDraftsOfTheDefaultModel, KeepTheLawOfACutAndPenalisedRequest) {
  OwnLogits logits(begun_answer(10, 2));
  const SamplingParams params{
      .temperature = 1.3, .top_p = 0.9, .top_k = 6, .frequency_penalty = 1, .max_tokens = 64};
  EXPECT_LT(deviation_of_texts(logits, params, 2, 20'000), 3.5);
}

/// Accepted drafts a step over all golden prompts, by block verification at temperature 1.
double accepted_a_step(bool drawn) {
  const GoldenRunner runner(default_model(), cpu());
  const std::vector<Json> cases = read_golden("golden.json").at("cases").as_array();
  std::vector<DraftedRun> runs(cases.size());
  ThreadPool pool;
  pool.parallel_for(std::ssize(cases), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      runs[at] = runner.drafted(
          integers<int32_t>(cases[at].at("prompt_ids")),
          {.seed = 1, .max_tokens = 24},
          {.rule = VerificationRule::kBlock, .drawn = drawn}
      );
    }
  });
  double steps = 0, accepted = 0;
  for (const DraftedRun& run : runs) {
    steps += static_cast<double>(run.steps);
    accepted += static_cast<double>(run.accepted);
  }
  return accepted / steps;
}

TEST(BlockDraftsOfTheDefaultModel, StayMoreOftenWhenTheyAreDrawn) {
  EXPECT_GT(accepted_a_step(/*drawn=*/true), 1.1 * accepted_a_step(/*drawn=*/false));
}

}  // namespace
}  // namespace di::golden
