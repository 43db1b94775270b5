// The pipeline from logits to a token; see sampler.h.
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sampling/philox.h"

namespace di::sampling {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

std::size_t index(int32_t token) {
  return static_cast<std::size_t>(token);
}

bool is_usable(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool any = false;
  for (const float logit : logits) {
    if (!(logit < kInfinity)) return false;
    any = any || logit > -kInfinity;
  }
  return any;
}

/// Token ids from the best down.
template <typename Logits>
std::vector<int32_t> ranked_tokens(const Logits& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[index(a)] != logits[index(b)] ? logits[index(a)] > logits[index(b)] : a < b;
  });
  return order;
}

}  // namespace

Sampler::Sampler(
    const SamplingParams& params,
    int32_t eos,
    uint64_t seed,
    std::span<const int32_t> prompt,
    std::span<const int32_t> outputs
)
    : params_(params), eos_(eos), seed_(seed) {
  if (params_.repetition_penalty != 1) {
    for (const int32_t token : prompt)
      counts_.try_emplace(token, 0);
  }
  for (const int32_t token : outputs)
    count(token);
}

void Sampler::count(int32_t token) {
  ++num_outputs_;
  if (params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
      params_.frequency_penalty != 0) {
    ++counts_[token];
  }
}

bool Sampler::is_end(int32_t token) const {
  const auto& stops = params_.stop_token_ids;
  return (token == eos_ && !params_.ignore_eos) ||
         std::find(stops.begin(), stops.end(), token) != stops.end();
}

void Sampler::process(std::vector<double>& logits) const {
  for (const auto& [token, times] : counts_) {
    double& logit = logits[index(token)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (times > 0) {
      logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<double>(times);
    }
  }
  for (const LogitBias& bias : params_.logit_bias)
    logits[index(bias.token)] += static_cast<double>(bias.bias);
  if (!params_.allowed_token_ids.empty()) {
    std::vector<double> kept;
    for (const int32_t token : params_.allowed_token_ids)
      kept.push_back(logits[index(token)]);
    std::fill(logits.begin(), logits.end(), kNever);
    for (std::size_t i = 0; i < kept.size(); ++i)
      logits[index(params_.allowed_token_ids[i])] = kept[i];
  }
  for (const int32_t token : params_.banned_token_ids)
    logits[index(token)] = kNever;
  if (num_outputs_ < params_.min_tokens) {
    if (!params_.ignore_eos) logits[index(eos_)] = kNever;
    for (const int32_t token : params_.stop_token_ids)
      logits[index(token)] = kNever;
  }
  if (num_outputs_ < params_.first_n_token_no_eos) logits[index(eos_)] = kNever;
}

int32_t Sampler::choose(const std::vector<double>& logits, int64_t position) const {
  std::vector<int32_t> tokens = ranked_tokens(logits);
  if (params_.temperature == 0) return tokens[0];
  if (params_.top_k > 0) {
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(params_.top_k)));
  }
  const double top = logits[index(tokens[0])];
  std::vector<double> mass;  // running sums of unnormalised probabilities
  double total = 0;
  for (const int32_t token : tokens) {
    total += std::exp((logits[index(token)] - top) / params_.temperature);
    mass.push_back(total);
  }
  const auto nucleus = std::lower_bound(mass.begin(), mass.end(), params_.top_p * total);
  double kept = nucleus == mass.end() ? total : *nucleus;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    if (mass[i] - mass[i - 1] < params_.min_p) {
      kept = std::min(kept, mass[i - 1]);
      break;
    }
  }
  const double draw = uniform(seed_, position, Stream::kTarget) * kept;
  const auto chosen = std::upper_bound(mass.begin(), mass.end(), draw);
  return tokens[static_cast<std::size_t>(std::min(chosen - mass.begin(), std::ssize(tokens) - 1))];
}

Draw Sampler::draw(std::span<const float> logits, int64_t position, std::vector<double>& scratch) {
  Draw draw;
  draw.finite = is_usable(logits);
  if (!draw.finite) return draw;
  scratch.assign(logits.begin(), logits.end());
  process(scratch);
  draw.finite = *std::max_element(scratch.begin(), scratch.end()) > kNever;
  if (!draw.finite) return draw;
  const auto output = static_cast<std::size_t>(num_outputs_);
  const auto& golden = params_.golden_token_ids;
  const bool forced = output < golden.size() && golden[output] >= 0;
  const int32_t token = forced ? golden[output] : choose(scratch, position);
  draw.token = token;
  if (params_.logprobs || params_.top_logprobs > 0) {
    draw = score(logits, token, params_.top_logprobs);
  }
  count(token);
  return draw;
}

double log_probability(std::span<const float> logits, int32_t token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits)
    total += std::exp(logit - top);
  return logits[index(token)] - top - std::log(total);
}

Draw score(std::span<const float> logits, int32_t token, int64_t top) {
  Draw draw;
  draw.finite = is_usable(logits);
  if (!draw.finite) return draw;
  draw.token = token;
  draw.logprob = static_cast<float>(log_probability(logits, token));
  std::vector<int32_t> best = ranked_tokens(logits);
  best.resize(std::min(best.size(), static_cast<std::size_t>(top)));
  for (const int32_t id : best)
    draw.top.push_back({id, static_cast<float>(log_probability(logits, id))});
  return draw;
}

}  // namespace di::sampling
