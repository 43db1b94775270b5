// The order of tokens: by logit from the best down, equal ones by id from the lowest up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace di::sampling {

/// A token with its logit.
struct Ranked {
  double logit = 0;
  int32_t token = 0;
};

/// Whether `a` comes before `b`.
inline bool ranks_before(const Ranked& a, const Ranked& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

/// The `count` best tokens of a row without NaNs, in their order; fewer when the row is shorter.
/// One pass with room for twice as many tokens.
template <typename T>
std::vector<Ranked> best_tokens(std::span<const T> logits, int64_t count) {
  const auto most = static_cast<std::size_t>(count);
  std::vector<Ranked> best;
  if (most == 0) return best;
  const auto keep_best = [&] {
    if (best.size() <= most) return;
    std::nth_element(best.begin(), best.begin() + count - 1, best.end(), ranks_before);
    best.resize(most);
  };
  bool full = false;
  double worst = 0;  // of the best so far, once there are enough; a later equal one ranks behind it
  constexpr std::size_t kBlock = 64;
  for (std::size_t at = 0; at < logits.size(); at += kBlock) {
    const std::span<const T> block = logits.subspan(at, std::min(kBlock, logits.size() - at));
    int better = full ? 0 : 1;
    for (const T logit : block)
      better |= static_cast<double>(logit) > worst ? 1 : 0;
    for (std::size_t i = 0; better != 0 && i < block.size(); ++i) {
      const auto logit = static_cast<double>(block[i]);
      if (full && logit <= worst) continue;
      best.push_back({logit, static_cast<int32_t>(at + i)});
      if (best.size() < 2 * most) continue;
      keep_best();
      worst = best.back().logit;
      full = true;
    }
  }
  keep_best();
  std::sort(best.begin(), best.end(), ranks_before);
  return best;
}

}  // namespace di::sampling
