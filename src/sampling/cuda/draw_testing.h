// Tools of the tests of draws on the device: random requests, a sampler of each kind for them, and
// results to compare.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/testing.h"
#include "sampling/cuda/draw.h"
#include "sampling/sampler.h"

namespace di::sampling::cuda::testing {

using ops::cuda::testing::DeviceArray;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Random logits and parameters; the seed decides everything.
class RandomRequests {
 public:
  RandomRequests(unsigned seed, int64_t vocab_size) : random_(seed), vocab_size_(vocab_size) {}

  double unit() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool one_in(int64_t count) { return below(count) == 0; }
  int32_t token() { return static_cast<int32_t>(below(vocab_size_)); }

  std::vector<int32_t> tokens(int64_t most) {
    std::vector<int32_t> ids(static_cast<std::size_t>(below(most) + 1));
    for (int32_t& id : ids)
      id = token();
    return ids;
  }

  /// Like a model's, flat, with many equal ones, nearly all forbidden, or broken.
  std::vector<float> logits() {
    std::vector<float> row(static_cast<std::size_t>(vocab_size_));
    const auto spread = static_cast<float>(std::exp(unit() * 7 - 4));
    const float grain = one_in(2) ? spread / 4 : 0;
    const int64_t forbidden = one_in(4) ? 1 + below(20) : 0;
    std::normal_distribution<float> normal(0, spread);
    for (float& logit : row) {
      logit = normal(random_);
      if (grain > 0) logit = std::round(logit / grain) * grain;
      if (forbidden > 0 && one_in(forbidden)) logit = -kInfinity;
    }
    for (int64_t peaks = below(20); peaks > 0; --peaks)
      row[static_cast<std::size_t>(token())] = spread * static_cast<float>(4 + 4 * unit());
    if (one_in(12)) std::fill(row.begin(), row.end(), 0.5f);
    if (one_in(40)) row[static_cast<std::size_t>(token())] = kInfinity;
    if (one_in(40)) row[static_cast<std::size_t>(token())] = std::nanf("");
    if (one_in(60)) std::fill(row.begin(), row.end(), -kInfinity);
    return row;
  }

  SamplingParams params() {
    SamplingParams p;
    p.temperature = one_in(4) ? 0 : one_in(3) ? 1 : std::exp(4 * unit() - 2);
    if (one_in(20)) p.temperature = one_in(2) ? 1e-310 : 1e300;
    if (one_in(2)) p.top_k = 1 + below(one_in(3) ? 3000 : 60);
    if (one_in(2)) p.top_p = 1 - unit() * unit();
    if (one_in(3)) p.min_p = unit() * unit() * unit();
    if (one_in(4)) p.repetition_penalty = 0.5 + unit();
    if (one_in(4)) p.presence_penalty = 4 * unit() - 2;
    if (one_in(4)) p.frequency_penalty = 4 * unit() - 2;
    if (one_in(4)) add_bias(p);
    if (one_in(6)) p.allowed_token_ids = tokens(one_in(2) ? 3 : vocab_size_);
    if (one_in(4)) p.banned_token_ids = tokens(one_in(2) ? 4 : vocab_size_);
    if (one_in(4)) p.min_tokens = 1 + below(3);
    if (one_in(4)) p.first_n_token_no_eos = 1 + below(3);
    if (one_in(4)) p.ignore_eos = true;
    if (one_in(3)) p.stop_token_ids = tokens(5);
    if (one_in(2)) p.logprobs = true;
    if (one_in(3)) p.top_logprobs = 1 + below(one_in(6) ? 1000 : 20);
    if (one_in(2)) p.processed_logprobs = true;
    if (one_in(6)) p.golden_token_ids = {token(), -1, token()};
    return p;
  }

 private:
  void add_bias(SamplingParams& p) {
    std::vector<uint8_t> is_taken(static_cast<std::size_t>(vocab_size_));
    for (const int32_t id : tokens(std::min<int64_t>(vocab_size_, one_in(3) ? 1000 : 5))) {
      if (is_taken[static_cast<std::size_t>(id)]++ != 0) continue;
      p.logit_bias.push_back({id, static_cast<float>(20 * unit() - 10)});
    }
  }

  std::mt19937_64 random_;
  int64_t vocab_size_;
};

/// A host and a device sampler of the same sequence.
struct Twins {
  Sampler host;
  DeviceSlot device;
};

inline std::unique_ptr<Twins> make_twins(
    RandomRequests& random, const SamplingParams& params, int64_t vocab_size, cudaStream_t stream
) {
  const int32_t eos = random.token();
  const auto seed = static_cast<uint64_t>(random.below(1'000'000'007) * 7919);
  const std::vector<int32_t> prompt = random.tokens(40);
  const std::vector<int32_t> outputs = random.one_in(2) ? std::vector<int32_t>{} : random.tokens(6);
  Arena staging;
  std::unique_ptr<Twins> twins(new Twins{
      Sampler(params, eos, seed, prompt, outputs),
      DeviceSlot(params, eos, seed, prompt, outputs, vocab_size, {}, staging, stream)});
  ops::cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // staging ends here
  return twins;
}

/// Arrays of results on the device.
struct Results {
  int64_t rows;
  int64_t most;
  DeviceArray<int32_t> tokens{rows};
  DeviceArray<float> logprobs{rows};
  DeviceArray<uint8_t> finite{rows};
  DeviceArray<int32_t> top_tokens{rows * most};
  DeviceArray<float> top_logprobs{rows * most};

  Drawn view() const {
    return {
        .tokens = View<int32_t, 1>(tokens.data(), rows),
        .logprobs = View<float, 1>(logprobs.data(), rows),
        .finite = View<uint8_t, 1>(finite.data(), rows),
        .top_tokens = View<int32_t, 2>(top_tokens.data(), rows, most),
        .top_logprobs = View<float, 2>(top_logprobs.data(), rows, most)};
  }

  std::vector<Draw> read() const {
    const auto token = tokens.read();
    const auto logprob = logprobs.read();
    const auto is_finite = finite.read();
    const auto top_token = top_tokens.read();
    const auto top_logprob = top_logprobs.read();
    std::vector<Draw> draws;
    for (std::size_t row = 0; row < token.size(); ++row) {
      Draw draw{.token = token[row], .logprob = logprob[row], .finite = is_finite[row] != 0};
      const auto first = row * static_cast<std::size_t>(most);
      for (std::size_t i = first; i < first + static_cast<std::size_t>(most); ++i) {
        if (top_token[i] >= 0) draw.top.push_back({top_token[i], top_logprob[i]});
      }
      draws.push_back(draw);
    }
    return draws;
  }
};

inline std::string describe(const SamplingParams& p) {
  return "temperature " + std::to_string(p.temperature) + " top_k " + std::to_string(p.top_k) +
         " top_p " + std::to_string(p.top_p) + " min_p " + std::to_string(p.min_p) + " penalties " +
         std::to_string(p.repetition_penalty) + " " + std::to_string(p.presence_penalty) + " " +
         std::to_string(p.frequency_penalty) + " bias " + std::to_string(p.logit_bias.size()) +
         " allowed " + std::to_string(p.allowed_token_ids.size()) + " banned " +
         std::to_string(p.banned_token_ids.size()) + " logprobs " + std::to_string(p.logprobs) +
         " top " + std::to_string(p.top_logprobs) + " processed " +
         std::to_string(p.processed_logprobs) + " golden " +
         std::to_string(p.golden_token_ids.size());
}

/// Equal, but for the last bits of a double where it lies next to 0: the sum of the softmax has
/// another order on the device.
inline void expect_same_logprob(float found, float expected, const std::string& what) {
  if (std::fabs(static_cast<double>(found) - expected) > 4e-15) {
    EXPECT_EQ(found, expected) << what;
  }
}

inline void expect_same(const Draw& found, const Draw& expected, const std::string& what) {
  EXPECT_EQ(found.token, expected.token) << what;
  EXPECT_EQ(found.finite, expected.finite) << what;
  expect_same_logprob(found.logprob, expected.logprob, what);
  ASSERT_EQ(found.top.size(), expected.top.size()) << what;
  for (std::size_t i = 0; i < found.top.size(); ++i) {
    EXPECT_EQ(found.top[i].token, expected.top[i].token) << what << ", best " << i;
    expect_same_logprob(found.top[i].logprob, expected.top[i].logprob, what);
  }
}

}  // namespace di::sampling::cuda::testing
