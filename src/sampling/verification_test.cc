// Verification keeps the target's law: by enumeration of every draft, schedule and coin for small
// vocabularies, and by drawing. A schedule that looks at the draft it decides on must fail.
#include "sampling/verification.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "sampling/verification_testing.h"

namespace di::sampling {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Whether one more draft is verified, told the drafts verified so far and the next one.
using Schedule = std::function<bool(const Tokens& before, int32_t next)>;

/// The law of texts of `most` + 1 tokens when up to `most` drafts are verified as `schedule` says.
TextLaw text_law(
    RandomModel& target,
    RandomModel& drafter,
    std::size_t most,
    const Schedule& schedule,
    bool point_masses = false
) {
  TextLaw law;
  const std::function<void(const Tokens&, double)> draft = [&](const Tokens& drafts, double share) {
    if (share == 0) return;
    if (drafts.size() < most) {
      for (int32_t token = 0; token < target.vocab(); ++token) {
        Tokens longer = drafts;
        longer.push_back(token);
        draft(longer, share * drafter.behind(drafts)[static_cast<std::size_t>(token)]);
      }
      return;
    }
    std::size_t k = 0;
    Tokens before;
    while (k < most && schedule(before, drafts[k]))
      before.push_back(drafts[k++]);
    add_outcomes(target, drafter, drafts, k, most + 1, share, point_masses, law);
  };
  draft({}, 1);
  return law;
}

/// Schedule number `bits` of those that decide by the drafts before: one bit for each prefix.
Schedule by_prefix(uint64_t bits, int32_t vocab) {
  return [bits, vocab](const Tokens& before, int32_t) {
    uint64_t first = 0, size = 1, at = 0;
    for (const int32_t token : before) {
      first += size;
      size *= static_cast<uint64_t>(vocab);
      at = at * static_cast<uint64_t>(vocab) + static_cast<uint64_t>(token);
    }
    return (bits >> (first + at) & 1) != 0;
  };
}

TEST(BlockVerification, KeepsTheLawUnderEverySchedule) {
  struct Case {
    int32_t vocab;
    std::size_t most;
    int bits;  // prefixes that a schedule decides on
  };
  for (const Case& c :
       {Case{2, 1, 1}, Case{2, 2, 3}, Case{2, 3, 7}, Case{3, 2, 4}, Case{4, 2, 5}}) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      RandomModel target(seed, c.vocab, 1.0);
      RandomModel drafter(seed + 100, c.vocab, 0.7);
      const TextLaw expected = target_law(target, c.most + 1);
      for (uint64_t bits = 0; bits < uint64_t{1} << c.bits; ++bits) {
        const TextLaw law = text_law(target, drafter, c.most, by_prefix(bits, c.vocab));
        ASSERT_LT(distance(law, expected), kExact) << c.vocab << " tokens, schedule " << bits;
      }
    }
  }
}

TEST(BlockVerification, KeepsTheLawOfLargerVocabularies) {
  std::mt19937_64 random(1);
  for (const int32_t vocab : {3, 4, 5}) {
    for (unsigned seed = 0; seed < 40; ++seed) {
      RandomModel target(seed, vocab, 2.0);
      RandomModel drafter(seed + 100, vocab, seed % 2 == 0 ? 2.0 : 0.2);
      const TextLaw expected = target_law(target, 4);
      const uint64_t bits = seed == 0 ? ~uint64_t{0} : random() | 1;
      const TextLaw law = text_law(target, drafter, 3, by_prefix(bits, vocab));
      ASSERT_LT(distance(law, expected), kExact) << vocab << " tokens, seed " << seed;
    }
  }
}

TEST(BlockVerification, KeepsTheLawWhenTheDrafterKnowsFewTokens) {
  for (const int32_t kept : {1, 2, 3}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      RandomModel target(seed, 5, 1.0);
      RandomModel drafter(seed + 100, 5, 1.0, kept);
      const TextLaw expected = target_law(target, 4);
      const TextLaw law = text_law(target, drafter, 3, by_prefix(~uint64_t{0}, 5));
      EXPECT_LT(distance(law, expected), kExact) << kept << " tokens kept, seed " << seed;
      if (kept > 1) continue;  // draws of one token are points
      const TextLaw points = text_law(target, drafter, 3, by_prefix(~uint64_t{0}, 5), true);
      EXPECT_LT(distance(points, expected), kExact);
    }
  }
}

// The paper's counterexample: verify a draft only when it is token 0.
TEST(BlockVerification, AScheduleThatLooksAheadChangesTheLaw) {
  RandomModel target(0, 2, 0), drafter(0, 2, 0);
  target.set({}, {0.7, 0.3});
  drafter.set({}, {0.5, 0.5});
  target.set({0}, {0.5, 0.5});
  target.set({1}, {0.5, 0.5});
  const Schedule anticipating = [](const Tokens&, int32_t next) { return next == 0; };
  const TextLaw law = text_law(target, drafter, 1, anticipating);
  EXPECT_NEAR(law.at({0, 0}) + law.at({0, 1}), 0.85, kExact);
  EXPECT_NEAR(law.at({1, 0}) + law.at({1, 1}), 0.15, kExact);
  for (unsigned seed = 0; seed < 5; ++seed) {
    RandomModel other(seed, 3, 1.0), guess(seed + 100, 3, 1.0);
    if (other.behind({})[0] * guess.behind({})[0] == 0) continue;  // token 0 never comes
    const TextLaw expected = target_law(other, 3);
    EXPECT_GT(distance(text_law(other, guess, 2, anticipating), expected), 1e-3);
  }
}

/// The mean number of accepted drafts when all are verified.
double mean_accepted(RandomModel& target, RandomModel& drafter, const Tokens& so_far, bool block) {
  constexpr std::size_t kMost = 3;
  double mean = 0;
  for (int32_t token = 0; so_far.size() < kMost && token < target.vocab(); ++token) {
    Tokens longer = so_far;
    longer.push_back(token);
    mean += drafter.behind(so_far)[static_cast<std::size_t>(token)] *
            mean_accepted(target, drafter, longer, block);
  }
  if (so_far.size() < kMost) return mean;
  const auto judged = judged_drafts(target, drafter, so_far, kMost);
  double left = 1;
  if (block) {
    const BlockOdds odds = block_odds(judged);
    for (std::size_t length = kMost; length > 0; --length) {
      mean += left * odds.accept[length] * static_cast<double>(length);
      left *= 1 - odds.accept[length];
    }
    return mean;
  }
  for (std::size_t i = 0; i < kMost; ++i) {  // one after another
    const std::vector<Candidate>& candidates = judged[i].candidates;
    const auto own = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return c.token == so_far[i];
    });
    if (own == candidates.end()) return mean;  // never drafted
    left *= std::min(1.0, own->wanted / own->drafted);
    mean += left;
  }
  return mean;
}

TEST(BlockVerification, AcceptsAtLeastWhatJudgingOneByOneDoes) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomModel target(seed, 4, 1.0), drafter(seed + 100, 4, 1.0);
    for (auto* model : {&target, &drafter})
      model->behind({});
    EXPECT_GE(
        mean_accepted(target, drafter, {}, true), mean_accepted(target, drafter, {}, false) - kExact
    );
  }
}

}  // namespace
}  // namespace di::sampling
