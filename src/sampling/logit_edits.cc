// Penalties, biases and bans, in their order; see logit_edits.h.
#include "sampling/logit_edits.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace di::sampling {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double& at(std::span<double> logits, int32_t token) {
  return logits[static_cast<std::size_t>(token)];
}

void ban(std::span<double> logits, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens)
    at(logits, token) = kNever;
}

}  // namespace

LogitEdits::LogitEdits(
    std::shared_ptr<const SamplingParams> params, int32_t eos, std::span<const int32_t> prompt
)
    : params_(std::move(params)), eos_(eos) {
  if (params_->repetition_penalty == 1) return;
  for (const int32_t token : prompt)
    seen(token).in_prompt = true;
}

void LogitEdits::count_output(int32_t token) {
  ++num_outputs_;
  if (counts_outputs()) ++seen(token).outputs;
}

void LogitEdits::take_back(int32_t token) {
  --num_outputs_;
  if (!counts_outputs()) return;
  Seen& entry = seen(token);
  if (--entry.outputs > 0 || entry.in_prompt) return;
  index_.erase(token);  // it came last, since all that came later was taken back before
  seen_.pop_back();
}

bool LogitEdits::counts_outputs() const {
  return params_->repetition_penalty != 1 || params_->presence_penalty != 0 ||
         params_->frequency_penalty != 0;
}

LogitEdits::Seen& LogitEdits::seen(int32_t token) {
  const auto [entry, is_new] = index_.try_emplace(token, seen_.size());
  if (is_new) seen_.push_back({token});
  return seen_[entry->second];
}

bool LogitEdits::eos_is_banned() const {
  return num_outputs_ < params_->first_n_token_no_eos ||
         (ends_are_banned() && !params_->ignore_eos);
}

bool LogitEdits::any() const {
  return !seen_.empty() || !params_->logit_bias.empty() || !params_->allowed_token_ids.empty() ||
         !params_->banned_token_ids.empty() || ends_are_banned() || eos_is_banned();
}

void LogitEdits::apply(std::span<double> logits) const {
  penalise(logits);
  for (const LogitBias& bias : params_->logit_bias)
    at(logits, bias.token) += static_cast<double>(bias.bias);
  if (!params_->allowed_token_ids.empty()) keep_allowed(logits);
  ban(logits, params_->banned_token_ids);
  if (ends_are_banned()) ban(logits, params_->stop_token_ids);
  if (eos_is_banned()) at(logits, eos_) = kNever;
}

void LogitEdits::penalise(std::span<double> logits) const {
  for (const Seen& seen : seen_) {
    double& logit = at(logits, seen.token);
    logit = logit > 0 ? logit / params_->repetition_penalty : logit * params_->repetition_penalty;
    if (seen.outputs == 0) continue;
    logit -= params_->frequency_penalty * static_cast<double>(seen.outputs);
    logit -= params_->presence_penalty;
  }
}

void LogitEdits::keep_allowed(std::span<double> logits) const {
  std::vector<double> kept;
  for (const int32_t token : params_->allowed_token_ids)
    kept.push_back(at(logits, token));
  std::fill(logits.begin(), logits.end(), kNever);
  for (std::size_t i = 0; i < kept.size(); ++i)
    at(logits, params_->allowed_token_ids[i]) = kept[i];
}

}  // namespace di::sampling
