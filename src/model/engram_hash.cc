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

std::vector<EngramHash> engram_hashes(
    const ModelConfig& config, std::span<const int32_t> token_map
) {
  const EngramConfig& engram = config.engram;
  std::vector<EngramHash> hashes;
  if (!engram.enabled()) return hashes;
  const int64_t classes = 1 + *std::max_element(token_map.begin(), token_map.end());
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
  int64_t candidate =
      engram.engram_vocab_size;  // primes ascend over all layers; none is used twice
  for (std::size_t i = 0; i < engram.engram_layer_ids.size(); ++i) {
    EngramHash hash;
    hash.multipliers =
        draw_multipliers(engram.engram_layer_ids[i], classes, engram.engram_max_ngram_size);
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
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

}  // namespace di::model
