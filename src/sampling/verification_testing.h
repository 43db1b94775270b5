// Test helper: small random models, and the law of the texts that verification makes of them,
// outcome by outcome.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "sampling/verification.h"

namespace di::sampling::testing {

/// How far a law that is reproduced exactly may lie from its own.
constexpr double kExact = 1e-12;

using Tokens = std::vector<int32_t>;
using Law = std::vector<double>;

/// A model over a small vocabulary: for every prefix a law of its own, made up on the way.
class RandomModel {
 public:
  /// `sharpness`: 0 is uniform; `kept`: every law has the best tokens alone, so many.
  RandomModel(unsigned seed, int32_t vocab, double sharpness, int32_t kept = 1 << 20)
      : random_(seed), vocab_(vocab), sharpness_(sharpness), kept_(std::min(kept, vocab)) {}

  const Law& behind(const Tokens& prefix) {
    const auto [found, is_new] = laws_.try_emplace(prefix);
    if (is_new) found->second = draw();
    return found->second;
  }
  void set(const Tokens& prefix, const Law& law) { laws_[prefix] = law; }
  int32_t vocab() const { return vocab_; }

 private:
  Law draw() {
    Law law;
    std::normal_distribution<double> normal;
    for (int32_t token = 0; token < vocab_; ++token)
      law.push_back(std::exp(sharpness_ * normal(random_)));
    if (random_() % 4 == 0) law[random_() % law.size()] = 0;  // cut away
    Law ranked = law;
    std::sort(ranked.rbegin(), ranked.rend());
    for (double& mass : law)
      if (mass < ranked[static_cast<std::size_t>(kept_ - 1)]) mass = 0;
    double sum = 0;
    for (const double mass : law)
      sum += mass;
    for (double& mass : law)
      mass /= sum;
    return law;
  }

  std::mt19937 random_;
  int32_t vocab_;
  double sharpness_;
  int32_t kept_;
  std::map<Tokens, Law> laws_;
};

/// Draft i of `drafts` as verification sees it. Candidates are the tokens that the drafter could
/// have drawn; or that draft alone, for drafts that are no draws.
inline JudgedDraft judged_draft(
    RandomModel& target, RandomModel& drafter, const Tokens& drafts, std::size_t i, bool point_mass
) {
  const Tokens before(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(i));
  const Law& wanted = target.behind(before);
  const Law& drafted = drafter.behind(before);
  JudgedDraft draft{.token = drafts[i]};
  for (int32_t token = 0; token < target.vocab(); ++token) {
    const auto at = static_cast<std::size_t>(token);
    const double share = point_mass ? (token == drafts[i] ? 1 : 0) : drafted[at];
    if (share > 0) {
      draft.candidates.push_back({token, share, wanted[at]});
    } else {
      draft.others += wanted[at];
    }
  }
  return draft;
}

/// The first `k` of `drafts`.
inline std::vector<JudgedDraft> judged_drafts(
    RandomModel& target,
    RandomModel& drafter,
    const Tokens& drafts,
    std::size_t k,
    bool point_masses = false
) {
  std::vector<JudgedDraft> judged;
  for (std::size_t i = 0; i < k; ++i)
    judged.push_back(judged_draft(target, drafter, drafts, i, point_masses));
  return judged;
}

/// The law of the token behind `length` accepted drafts.
inline Law law_behind(
    RandomModel& target,
    const Tokens& drafts,
    const std::vector<JudgedDraft>& judged,
    const BlockOdds& odds,
    std::size_t length
) {
  Law law = target.behind({drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(length)});
  if (length == judged.size()) return law;
  const JudgedDraft& next = judged[length];
  const Remainder rest = remainder(next, odds.weight[length]);
  for (double& mass : law)
    mass *= odds.weight[length];
  for (std::size_t i = 0; i < rest.candidates.size(); ++i)
    law[static_cast<std::size_t>(next.candidates[i].token)] = rest.candidates[i];
  for (double& mass : law)
    mass = rest.all > 0 ? mass / rest.all : 0;
  return law;
}

/// The law of the first `length` tokens of a text, one entry for each string of tokens.
using TextLaw = std::map<Tokens, double>;

/// Adds `probability` times what the target makes of `prefix`, up to `length` tokens.
inline void add_target(
    RandomModel& target, const Tokens& prefix, std::size_t length, double probability, TextLaw& law
) {
  if (probability == 0) return;
  if (prefix.size() == length) {
    law[prefix] += probability;
    return;
  }
  for (int32_t token = 0; token < target.vocab(); ++token) {
    Tokens longer = prefix;
    longer.push_back(token);
    const double share = target.behind(prefix)[static_cast<std::size_t>(token)];
    add_target(target, longer, length, probability * share, law);
  }
}

/// Every outcome of one verified block, continued by the target to `length` tokens.
inline void add_outcomes(
    RandomModel& target,
    RandomModel& drafter,
    const Tokens& drafts,
    std::size_t k,
    std::size_t length,
    double probability,
    bool point_masses,
    TextLaw& law
) {
  const auto judged = judged_drafts(target, drafter, drafts, k, point_masses);
  const BlockOdds odds = block_odds(judged);
  double left = probability;  // no longer length was accepted
  for (std::size_t accepted = k + 1; accepted-- > 0;) {
    const Law behind = law_behind(target, drafts, judged, odds, accepted);
    const double share = odds.accept[accepted];
    for (int32_t token = 0; token < target.vocab() && share > 0; ++token) {
      Tokens text(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(accepted));
      text.push_back(token);
      const double mass = behind[static_cast<std::size_t>(token)];
      add_target(target, text, length, left * share * mass, law);
    }
    left *= 1 - share;
  }
}

/// The largest difference of two laws.
inline double distance(const TextLaw& a, const TextLaw& b) {
  double most = 0;
  TextLaw all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [text, unused] : all) {
    const double left = a.contains(text) ? a.at(text) : 0;
    const double right = b.contains(text) ? b.at(text) : 0;
    most = std::max(most, std::abs(left - right));
  }
  return most;
}

/// The law of the first `length` tokens of the target itself.
inline TextLaw target_law(RandomModel& target, std::size_t length) {
  TextLaw law;
  add_target(target, {}, length, 1, law);
  return law;
}

}  // namespace di::sampling::testing
