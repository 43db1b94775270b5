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
  /// `sharpness`: 0 is uniform; greedy: every law is one token.
  RandomModel(unsigned seed, int32_t vocab, double sharpness, bool greedy = false)
      : random_(seed), vocab_(vocab), sharpness_(sharpness), greedy_(greedy) {}

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
    if (greedy_) {
      const std::size_t best = std::max_element(law.begin(), law.end()) - law.begin();
      std::fill(law.begin(), law.end(), 0.0);
      law[best] = 1;
    }
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
  bool greedy_;
  std::map<Tokens, Law> laws_;
};

/// The block of the first `k` of `drafts`, with the rows that verification sees.
struct OwnedBlock {
  OwnedBlock(RandomModel& target, RandomModel& drafter, const Tokens& all, std::size_t k)
      : drafts(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k)) {
    for (std::size_t i = 0; i <= k; ++i) {
      const Tokens prefix(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i));
      const Law& wanted = target.behind(prefix);
      target_rows.insert(target_rows.end(), wanted.begin(), wanted.end());
      if (i == k) break;
      const Law& drafted = drafter.behind(prefix);
      draft_rows.insert(draft_rows.end(), drafted.begin(), drafted.end());
    }
    const int64_t vocab = target.vocab();
    block.drafts = drafts;
    block.target = View<const double, 2>(target_rows.data(), k + 1, vocab);
    if (k > 0) block.draft = View<const double, 2>(draft_rows.data(), k, vocab);
  }
  OwnedBlock(const OwnedBlock&) = delete;

  Tokens drafts;
  Law target_rows, draft_rows;
  DraftBlock block;
};

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
  OwnedBlock owned(target, drafter, drafts, k);
  if (point_masses) owned.block.draft = {};
  const BlockOdds odds = block_odds(owned.block);
  double left = probability;  // no longer length was accepted
  for (int64_t accepted = static_cast<int64_t>(k); accepted >= 0; --accepted) {
    const double share = odds.accept[static_cast<std::size_t>(accepted)];
    double all = 0;
    for (int32_t token = 0; token < target.vocab(); ++token)
      all += next_mass(owned.block, odds, accepted, token);
    for (int32_t token = 0; token < target.vocab() && share > 0 && all > 0; ++token) {
      Tokens text(drafts.begin(), drafts.begin() + accepted);
      text.push_back(token);
      const double mass = next_mass(owned.block, odds, accepted, token) / all;
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
