// Block verification of whole requests keeps their law, by enumeration of every draft and of every
// region of random numbers, found by bisection from outside.
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "sampling/draft_testing.h"

namespace di::sampling {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kBlock = VerificationRule::kBlock;

/// Adds `probability` times the law of what the target, without drafts, makes of `outputs` behind
/// `prompt`: texts of `length` tokens, shorter when one ends the choice.
void add_continuations(
    LogitModel& target,
    Sampler& sampler,
    const Tokens& prompt,
    const Tokens& outputs,
    std::size_t length,
    double probability,
    TextLaw& law
) {
  const bool ended = !outputs.empty() && sampler.is_end(outputs.back());
  if (outputs.size() >= length || ended) {
    law[outputs] += probability;
    return;
  }
  std::vector<double> storage;
  SampledRow row = sampler.row(target.behind(joined(prompt, outputs)), storage);
  if (!row.law.drawable()) {
    law[joined(outputs, {-1})] += probability;
    return;
  }
  for (int32_t token = 0; token < target.vocab(); ++token) {
    const uint64_t mass = row.law.mass_of_token(token);
    if (mass == 0) continue;
    const double share = static_cast<double>(mass) / static_cast<double>(row.law.mass());
    CountedAhead counted(sampler);
    counted.count(token);
    add_continuations(
        target, sampler, prompt, joined(outputs, {token}), length, probability * share, law
    );
  }
}

/// Measures the set of numbers in [low, high) at which `value` is what it is at each point, given
/// that equal values lie side by side.
void measure_regions(
    const std::function<Tokens(double)>& value,
    double low,
    const Tokens& at_low,
    double high,
    const Tokens& at_high,
    TextLaw& regions
) {
  if (at_low == at_high) {
    regions[at_low] += high - low;
    return;
  }
  if (high - low < 0x1p-50) {
    regions[at_low] += (high - low) / 2;
    regions[at_high] += (high - low) / 2;
    return;
  }
  const double middle = (low + high) / 2;
  const Tokens at_middle = value(middle);
  measure_regions(value, low, at_low, middle, at_middle, regions);
  measure_regions(value, middle, at_middle, high, at_high, regions);
}

TextLaw regions_of(const std::function<Tokens(double)>& value) {
  TextLaw regions;
  constexpr double kLast = 1 - 0x1p-53;
  measure_regions(value, 0, value(0), 1, value(kLast), regions);
  return regions;
}

/// One request's block, verified with numbers of the test's choice.
class BlockUnderTest {
 public:
  BlockUnderTest(
      LogitModel& target,
      const Sampler& sampler,
      const Tokens& prompt,
      const Tokens& drafts,
      const std::vector<DraftLaw>& laws
  )
      : sampler_(sampler), rows_(target, prompt, drafts, laws) {}

  VerifiedDraws verify(const BlockNumbers& numbers) {
    Sampler sampler = sampler_;
    return verify_block(sampler, rows_.rows, numbers, scratch_);
  }

  /// The law of the told tokens over all numbers: each coin has a threshold, shares have regions.
  TextLaw law() {
    TextLaw law;
    const std::size_t k = rows_.drafts.size();
    double left = 1;
    for (std::size_t length = k + 1; length-- > 0;) {
      BlockNumbers numbers{.coins = std::vector<double>(k, 1.0)};  // nothing is accepted
      double accepts = 1;
      if (length > 0) {
        const auto accepted = [&](double coin) {
          numbers.coins[length - 1] = coin;
          const bool stays = verify(numbers).accepted == static_cast<int64_t>(length);
          return Tokens{stays ? 1 : 0};
        };
        const TextLaw regions = regions_of(accepted);
        accepts = regions.contains({1}) ? regions.at({1}) : 0;
        numbers.coins[length - 1] = 0;
      }
      if (accepts == 0) continue;
      const auto told = [&](double share) {
        numbers.share = share;
        return tokens_of(verify(numbers).draws);
      };
      for (const auto& [tokens, measure] : regions_of(told))
        law[tokens] += left * accepts * measure;
      left *= 1 - accepts;
    }
    return law;
  }

 private:
  const Sampler& sampler_;
  OwnedRows rows_;
  RowsScratch scratch_;
};

/// One request: a target, a drafter and parameters.
struct Request {
  LogitModel target, drafter;
  Sampler sampler;
  Tokens prompt = {1, 3};
};

/// Adds `probability` times the law of `length` outputs, the first ones from these drafts.
void add_verified(
    Request& request,
    const Tokens& drafts,
    const std::vector<DraftLaw>& laws,
    std::size_t length,
    double probability,
    TextLaw& law
) {
  BlockUnderTest block(request.target, request.sampler, request.prompt, drafts, laws);
  for (const auto& [outputs, measure] : block.law()) {
    if (outputs.back() < 0) {  // not finite
      law[outputs] += probability * measure;
      continue;
    }
    CountedAhead counted(request.sampler);
    for (const int32_t token : outputs)
      counted.count(token);
    const double share = probability * measure;
    add_continuations(request.target, request.sampler, request.prompt, outputs, length, share, law);
  }
}

/// Adds `probability` times the law of `most` + 1 outputs, the first ones from `most` drafts of
/// which these are given.
void add_drafted(
    Request& request,
    const Tokens& drafts,
    const std::vector<DraftLaw>& laws,
    std::size_t most,
    double probability,
    TextLaw& law
) {
  if (drafts.size() == most) {
    add_verified(request, drafts, laws, most + 1, probability, law);
    return;
  }
  std::vector<double> scratch;
  const Tokens text = joined(request.prompt, drafts);
  const DraftChoice choice = choose_draft(
      request.sampler,
      kBlock,
      {request.drafter.behind(text), std::ssize(request.prompt) - 1, drafts},
      scratch
  );
  std::vector<DraftLaw> longer = laws;
  longer.push_back(choice.law);
  DraftLaw shares = choice.law;
  if (shares.empty()) shares = {{choice.token, 1}};
  for (const DraftShare& share : shares) {
    const double both = probability * share.probability;
    add_drafted(request, joined(drafts, {share.token}), longer, most, both, law);
  }
}

TextLaw law_with_drafts(Request& request, std::size_t most) {
  TextLaw law;
  add_drafted(request, {}, {}, most, 1, law);
  return law;
}

TextLaw law_without_drafts(Request& request, std::size_t length) {
  TextLaw law;
  add_continuations(request.target, request.sampler, request.prompt, {}, length, 1, law);
  return law;
}

TEST(BlockDrafts, KeepTheLawOfEveryRequest) {
  std::mt19937 random(3);
  for (unsigned run = 0; run < 150; ++run) {
    const SamplingParams params = random_params(random);
    Request request{
        .target = {run, 4, 1},
        .drafter = {run + 1000, 4, 1},
        .sampler = {params, kEos, 0, {{1, 3}}, {}}};
    const std::size_t most = run % 10 == 0 ? 3 : 2;
    ASSERT_LT(
        distance(law_with_drafts(request, most), law_without_drafts(request, most + 1)), kExact
    ) << "run "
      << run;
  }
}

TEST(BlockDrafts, KeepTheLawAroundRowsThatAreNotFinite) {
  for (unsigned run = 0; run < 20; ++run) {
    Request request{
        .target = {run, 3, 1},
        .drafter = {run + 1000, 3, 1},
        .sampler = {SamplingParams{}, kEos, 0, {{1, 3}}, {}}};
    request.target.set({1, 3, static_cast<int32_t>(run % 2) + 1}, {0, kNan, 1});
    ASSERT_LT(distance(law_with_drafts(request, 2), law_without_drafts(request, 3)), kExact);
  }
}

// Drafts that nobody drew, and candidates that leave most of the target to others.
TEST(BlockDrafts, KeepTheLawBehindGuesses) {
  std::mt19937 random(7);
  for (unsigned run = 0; run < 40; ++run) {
    const SamplingParams params = random_params(random);
    Request request{
        .target = {run, 5, 1}, .drafter = {0, 5, 0}, .sampler = {params, kEos, 0, {{1, 3}}, {}}};
    const Tokens drafts = {static_cast<int32_t>(random() % 5), static_cast<int32_t>(random() % 5)};
    TextLaw law;
    add_verified(request, drafts, {{}, {}}, 3, 1, law);
    ASSERT_LT(distance(law, law_without_drafts(request, 3)), kExact) << "run " << run;
  }
}

TEST(BlockDrafts, OfTheTargetItselfAreAllAccepted) {
  std::mt19937 random(4);
  for (unsigned run = 0; run < 200; ++run) {
    LogitModel target(run, kDraftCandidates, 2);
    SamplingParams params = random_params(random);
    params.stop_token_ids = {};
    params.ignore_eos = true;
    Sampler sampler(params, kEos, run, {}, {});
    const DraftedTokens drafted(target, sampler, kBlock, {5, 6}, 5);
    const OwnedRows block(target, {5, 6}, drafted.tokens, drafted.laws);
    RowsScratch scratch;
    EXPECT_EQ(verify_drafts(sampler, kBlock, block.rows, scratch).accepted, 5) << "run " << run;
  }
}

}  // namespace
}  // namespace di::sampling
