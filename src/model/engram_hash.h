// The n-gram hash of Engram: which table rows a position looks up. Constants are derived from the
// configuration and the token map alone. Source: model specification section 4.3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"

namespace di::model {

/// The constants of one Engram layer's hash (ops::EngramHash), in the machine's memory.
struct EngramHash {
  std::vector<int64_t> multipliers;  ///< [engram_max_ngram_size], odd
  std::vector<int64_t> primes;       ///< [orders · heads], order by order
  std::vector<int64_t> offsets;      ///< exclusive prefix sums of `primes`
};

/// The hashes of all Engram layers. Throws Error{kInvalidFile} when they, or the classes of
/// `token_map` [vocab_size] (text/engram_token_map), contradict engram_num_embeddings or
/// engram_compressed_vocab_size.
std::vector<EngramHash> engram_hashes(
    const ModelConfig& config, std::span<const int32_t> token_map
);

}  // namespace di::model
