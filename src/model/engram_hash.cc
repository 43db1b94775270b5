#include "model/engram_hash.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "model/numpy_random.h"

namespace di::model {
namespace {

bool is_prime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d <= n / d; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

/// Odd multipliers so small that multiplier · compressed id stays below 2^63.
std::vector<int64_t> draw_multipliers(int64_t layer, int64_t classes, int64_t count) {
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / classes / 2);
  NumpyRandom random(static_cast<uint32_t>(10007 * layer));
  std::vector<int64_t> multipliers;
  for (int64_t i = 0; i < count; ++i) {
    multipliers.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(bound))) * 2 + 1);
  }
  return multipliers;
}

}  // namespace

EngramHasher::EngramHasher(const ModelConfig& config, std::vector<int32_t> token_map)
    : token_map_(std::move(token_map)) {
  const EngramConfig& engram = config.engram;
  if (!engram.enabled()) return;
  const int64_t classes = 1 + *std::max_element(token_map_.begin(), token_map_.end());
  if (classes != engram.engram_compressed_vocab_size) {
    throw Error(
        ErrorCode::kInvalidFile,
        fmt::format(
            "tokenizer.json gives {} Engram token classes, config.json says "
            "engram_compressed_vocab_size {}; do the two files belong together?",
            classes,
            engram.engram_compressed_vocab_size
        )
    );
  }
  max_ngram_size_ = engram.engram_max_ngram_size;
  pad_ = token_map_[static_cast<std::size_t>(engram.engram_pad_token_id)];
  int64_t candidate =
      engram.engram_vocab_size;  // primes ascend over all layers; none is used twice
  for (std::size_t i = 0; i < engram.engram_layer_ids.size(); ++i) {
    EngramHash hash;
    hash.multipliers = draw_multipliers(engram.engram_layer_ids[i], classes, max_ngram_size_);
    int64_t total = 0;
    for (int64_t n = 0; n < engram.rows_per_token(); ++n) {
      while (!is_prime(candidate))
        ++candidate;
      hash.primes.push_back(candidate);
      hash.offsets.push_back(total);
      total += candidate++;
    }
    if (total != engram.engram_num_embeddings[i]) {
      throw Error(
          ErrorCode::kInvalidFile,
          fmt::format(
              "config.json: engram_num_embeddings[{}] is {}, the primes from engram_vocab_size {} "
              "on "
              "sum to {}",
              i,
              engram.engram_num_embeddings[i],
              engram.engram_vocab_size,
              total
          )
      );
    }
    layers_.push_back(std::move(hash));
  }
}

void EngramHash::rows(std::span<const int32_t> newest_first, int64_t pad, int64_t* rows) const {
  const std::size_t orders = multipliers.size() - 1;
  const std::size_t heads = primes.size() / orders;
  bool blocked = false;
  int64_t mixed = 0;
  for (std::size_t back = 0; back <= orders; ++back) {
    blocked = blocked || back >= newest_first.size() || newest_first[back] == kDeadToken;
    mixed ^= (blocked ? pad : newest_first[back]) * multipliers[back];
    for (std::size_t head = 0; head < heads && back > 0; ++head) {
      const std::size_t n = (back - 1) * heads + head;
      rows[n] = mixed % primes[n] + offsets[n];
    }
  }
}

}  // namespace di::model
