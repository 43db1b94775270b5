// The pipeline from logits to a token; see sampler.h.
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sampling/distribution.h"
#include "sampling/philox.h"
#include "sampling/ranking.h"
#include "sampling/row_kernels.h"

namespace di::sampling {
namespace {

Peak peak_of(std::span<const float> logits) {
  return row_kernels().peak_of_floats(logits.data(), logits.size());
}

Peak peak_of(std::span<const double> logits) {
  return row_kernels().peak_of_doubles(logits.data(), logits.size());
}

/// The softmax of a row as the model gave it.
class ModelDistribution {
 public:
  ModelDistribution(std::span<const float> logits, const Peak& peak)
      : logits_(logits),
        top_(peak.value),
        log_sum_(std::log(row_kernels().sum_exp(logits.data(), logits.size(), peak.value))) {}

  double logprob(int32_t token) const {
    return static_cast<double>(logits_[static_cast<std::size_t>(token)]) - top_ - log_sum_;
  }

 private:
  std::span<const float> logits_;
  double top_;
  double log_sum_;
};

/// Fills in the logprobs of `draw` and of the `top` best tokens of `logits`.
template <typename T, typename From>
void report(std::span<const T> logits, From& distribution, int64_t top, Draw& draw) {
  const auto logprob = [&](int32_t token) {
    return static_cast<float>(std::max(distribution.logprob(token), kLogprobFloor));
  };
  draw.logprob = logprob(draw.token);
  for (const Ranked& best : best_tokens(logits, top))
    draw.top.push_back({best.token, logprob(best.token)});
}

void report_model(std::span<const float> logits, const Peak& peak, int64_t top, Draw& draw) {
  const ModelDistribution distribution(logits, peak);
  report(logits, distribution, top, draw);
}

}  // namespace

Sampler::Sampler(
    std::shared_ptr<const SamplingParams> params,
    int32_t eos,
    uint64_t seed,
    std::span<const int32_t> prompt,
    std::span<const int32_t> outputs
)
    : params_(std::move(params)), eos_(eos), seed_(seed), edits_(params_, eos, prompt) {
  for (const int32_t token : outputs)
    edits_.count_output(token);
}

bool Sampler::is_end(int32_t token) const {
  return ends_choice(*params_, eos_, token);
}

/// The token that golden_token_ids asks for now, or −1.
int32_t Sampler::forced_token() const {
  const auto output = static_cast<std::size_t>(num_outputs());
  const std::vector<int32_t>& golden = params_->golden_token_ids;
  return output < golden.size() ? golden[output] : -1;
}

bool Sampler::wants_logprobs() const {
  return params_->logprobs || params_->top_logprobs > 0;
}

Draw Sampler::draw(std::span<const float> logits, int64_t position, std::vector<double>& scratch) {
  SampledRow sampled = row(logits, scratch);
  if (!sampled.law.drawable()) return {.finite = false};
  return tell(sampled, sampled.law.token_at(uniform(seed_, position, Stream::kTarget)));
}

SampledRow Sampler::row(std::span<const float> logits, std::vector<double>& storage) const {
  const Peak peak = peak_of(logits);
  SampledRow row{logits, peak, {}, Distribution(peak)};
  if (!peak.usable) return row;
  const int32_t forced = forced_token();
  if (forced >= 0) row.law = Distribution({true, static_cast<std::size_t>(forced)});
  const bool reported = wants_logprobs() && params_->processed_logprobs;
  const bool drawn = forced < 0 && (params_->temperature != 0 || edits_.any());
  if (!reported && !drawn) return row;
  storage.assign(logits.begin(), logits.end());
  edits_.apply(storage);
  row.edited = storage;
  Distribution processed(row.edited, peak_of(row.edited), *params_);
  if (forced >= 0) {
    row.beside = std::move(processed);
  } else {
    row.law = std::move(processed);
  }
  return row;
}

int32_t Sampler::best_token(std::span<const float> logits, std::vector<double>& storage) const {
  Peak peak = peak_of(logits);
  if (!peak.usable) return -1;
  if (const int32_t forced = forced_token(); forced >= 0) return forced;
  if (edits_.any()) {
    storage.assign(logits.begin(), logits.end());
    edits_.apply(storage);
    peak = peak_of(std::span<const double>(storage));
  }
  return peak.usable ? static_cast<int32_t>(peak.index) : -1;
}

Draw Sampler::tell(SampledRow& row, int32_t token) {
  Draw draw{.token = token};
  if (wants_logprobs() && params_->processed_logprobs) {
    report(row.edited, row.beside ? *row.beside : row.law, params_->top_logprobs, draw);
  } else if (wants_logprobs()) {
    report_model(row.logits, row.peak, params_->top_logprobs, draw);
  }
  edits_.count_output(token);
  return draw;
}

double log_probability(std::span<const float> logits, int32_t token) {
  return ModelDistribution(logits, peak_of(logits)).logprob(token);
}

Draw score(std::span<const float> logits, int32_t token, int64_t top) {
  const Peak peak = peak_of(logits);
  if (!peak.usable) return {.finite = false};
  Draw draw{.token = token};
  report_model(logits, peak, top, draw);
  return draw;
}

}  // namespace di::sampling
