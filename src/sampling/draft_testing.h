// Test helper: models that answer any text with a row of random logits, and what a drafter and a
// target make of them for one request.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "sampling/draft_verifier.h"
#include "sampling/verification_testing.h"

namespace di::sampling::testing {

constexpr int32_t kEos = 0;

/// A model over a small vocabulary: for every text a row of its own, made up on the way.
class LogitModel {
 public:
  LogitModel(unsigned seed, int32_t vocab, float sharpness)
      : random_(seed), vocab_(vocab), sharpness_(sharpness) {}

  const std::vector<float>& behind(const Tokens& text) {
    const auto [found, is_new] = rows_.try_emplace(text);
    if (is_new) found->second = draw();
    return found->second;
  }
  void set(const Tokens& text, const std::vector<float>& row) { rows_[text] = row; }
  int32_t vocab() const { return vocab_; }

 private:
  std::vector<float> draw() {
    std::normal_distribution<float> normal(0, sharpness_);
    std::vector<float> row;
    for (int32_t token = 0; token < vocab_; ++token)
      row.push_back(normal(random_));
    return row;
  }

  std::mt19937 random_;
  int32_t vocab_;
  float sharpness_;
  std::map<Tokens, std::vector<float>> rows_;
};

inline Tokens joined(Tokens text, const Tokens& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

inline Tokens tokens_of(const std::vector<Draw>& draws) {
  Tokens tokens;
  for (const Draw& draw : draws)
    tokens.push_back(draw.token);
  return tokens;
}

/// The target's rows behind `text` and behind each of `drafts`, with room for the drafts.
struct OwnedRows {
  OwnedRows(LogitModel& target, const Tokens& text, Tokens all_drafts, std::vector<DraftLaw> laws)
      : drafts(std::move(all_drafts)), draft_laws(std::move(laws)) {
    Tokens so_far = text;
    for (std::size_t i = 0; i <= drafts.size(); ++i) {
      const std::vector<float>& row = target.behind(so_far);
      logits.insert(logits.end(), row.begin(), row.end());
      if (i < drafts.size()) so_far.push_back(drafts[i]);
    }
    const auto count = std::ssize(drafts) + 1;
    rows = {
        .logits = View<const float, 2>(logits.data(), count, target.vocab()),
        .drafts = drafts,
        .laws = draft_laws,
        .anchor_position = std::ssize(text) - 1};
  }
  OwnedRows(const OwnedRows&) = delete;

  std::vector<float> logits;
  Tokens drafts;
  std::vector<DraftLaw> draft_laws;
  DraftedRows rows;
};

/// What a drafter proposes behind `text`, `count` tokens; the sampler is left as it was.
struct DraftedTokens {
  DraftedTokens(
      LogitModel& drafter,
      Sampler& sampler,
      VerificationRule rule,
      const Tokens& text,
      int64_t count
  ) {
    std::vector<double> scratch;
    for (int64_t i = 0; i < count; ++i) {
      Tokens so_far = text;
      so_far.insert(so_far.end(), tokens.begin(), tokens.end());
      DraftChoice choice = choose_draft(
          sampler, rule, {drafter.behind(so_far), std::ssize(text) - 1, tokens}, scratch
      );
      tokens.push_back(choice.token);
      laws.push_back(std::move(choice.law));
    }
  }

  Tokens tokens;
  std::vector<DraftLaw> laws;
};

/// Parameters that come up in requests, small enough for a vocabulary of 4 tokens and more.
inline SamplingParams random_params(std::mt19937& random) {
  const auto one_in = [&](unsigned count) { return random() % count == 0; };
  const auto token = [&] { return static_cast<int32_t>(random() % 4); };
  SamplingParams params{.max_tokens = 64};
  params.temperature = one_in(5) ? 0 : 0.5 + 0.25 * static_cast<double>(random() % 4);
  if (one_in(3)) params.top_k = 2 + static_cast<int64_t>(random() % 3);
  if (one_in(3)) params.top_p = 0.8;
  if (one_in(4)) params.min_p = 0.1;
  if (one_in(3)) params.repetition_penalty = 1.4;
  if (one_in(3)) params.presence_penalty = 0.7;
  if (one_in(3)) params.frequency_penalty = -0.5;
  if (one_in(4)) params.logit_bias = {{token(), 1.5F}};
  if (one_in(4)) params.banned_token_ids = {token()};
  if (one_in(5)) params.allowed_token_ids = {0, 1, 2};
  if (one_in(3)) params.min_tokens = 2;
  if (one_in(4)) params.first_n_token_no_eos = 1;
  if (one_in(4)) params.ignore_eos = true;
  if (one_in(4)) params.stop_token_ids = {token()};
  if (one_in(4)) params.golden_token_ids = {-1, token(), -1, token()};
  params.logprobs = one_in(2);
  params.processed_logprobs = one_in(2);
  if (one_in(3)) params.top_logprobs = 2;
  return params;
}

}  // namespace di::sampling::testing
