// The n-gram hash of Engram: which table rows a position looks up. Constants are derived from the
// configuration and the token map alone. Source: model specification section 4.3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"

namespace di::model {

/// Stands for an image position: it ends every look-back across it.
inline constexpr int32_t kDeadToken = -1;

/// The hash of one Engram layer.
struct EngramHash {
  std::vector<int64_t> multipliers;  ///< [engram_max_ngram_size], odd
  std::vector<int64_t> primes;       ///< [orders · heads], order by order
  std::vector<int64_t> offsets;      ///< exclusive prefix sums of `primes`

  /// Writes the table rows [orders · heads] that a position looks up. `newest_first` holds
  /// compressed ids: the position's own, then the ones before it; positions before the sequence are
  /// simply absent. `pad` takes the place of what is absent or behind a kDeadToken.
  void rows(std::span<const int32_t> newest_first, int64_t pad, int64_t* rows) const;
};

/// The hashes of all Engram layers, and the map from token ids to compressed ids.
class EngramHasher {
 public:
  EngramHasher() = default;

  /// Derives the constants. `token_map` [vocab_size] is text/engram_token_map's.
  /// Throws Error{kInvalidFile} when they contradict engram_num_embeddings or
  /// engram_compressed_vocab_size.
  EngramHasher(const ModelConfig& config, std::vector<int32_t> token_map);

  /// The compressed id of a token, or kDeadToken for an image position.
  int32_t compress(int32_t token, bool is_image) const {
    return is_image ? kDeadToken : token_map_[static_cast<std::size_t>(token)];
  }

  /// EngramHash::rows of Engram layer number `index`.
  void rows(int64_t index, std::span<const int32_t> newest_first, int64_t* rows) const {
    layers_[static_cast<std::size_t>(index)].rows(newest_first, pad_, rows);
  }

  const std::vector<EngramHash>& layers() const { return layers_; }
  int64_t max_ngram_size() const { return max_ngram_size_; }

 private:
  std::vector<int32_t> token_map_;
  std::vector<EngramHash> layers_;
  int64_t max_ngram_size_ = 0;
  int64_t pad_ = 0;  // compressed id of engram_pad_token_id
};

}  // namespace di::model
