// Where everything that a sequence remembers lies: bytes of a block and of a state slot.
//
// A block holds the compressed KV records and index keys of 128 tokens, owner layer by owner layer.
// A state slot holds one sequence's window rings and compressor carries. Rings and carries are
// longer than what attention reads, by kRollbackTokens: rows that are later rejected overwrite
// nothing that is still needed, so nothing is ever copied back.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "ops/attention.h"
#include "ops/rows.h"

namespace di::cache {

/// Tokens of one block.
inline constexpr int64_t kBlockTokens = 128;

/// Rows of one step that may be taken back: a draft block and the token before it.
inline constexpr int64_t kRollbackTokens = 6;

/// Drafts of a sequence that a step may verify: its rows beside the newest token's.
inline constexpr int64_t kMostDrafts = kRollbackTokens - 1;

/// One owner layer's sections inside a block.
struct BlockSection {
  int64_t layer = 0;
  int64_t ratio = 0;
  int64_t entries_per_block = 0;  ///< kBlockTokens / ratio
  int64_t index_offset = 0;       ///< all entries' index codes, then all their scales
  int64_t index_code_bytes = 0;   ///< of one entry
  int64_t kv_offset = 0;          ///< records, each codes then scales
  int64_t kv_record_bytes = 0;
};

/// One layer's ring or carry inside a state slot.
struct SlotSection {
  int64_t offset = 0;
  int64_t length = 0;  ///< records
  int64_t record_bytes = 0;
};

/// The whole layout of a model's caches; a pure function of its configuration.
struct Layout {
  std::vector<BlockSection> owners;  ///< in layer order
  std::vector<int64_t> owner_of;     ///< [layer]: index into `owners`, −1 for others
  int64_t block_bytes = 0;
  std::vector<SlotSection> rings;    ///< [layer], drafts behind the backbone
  std::vector<SlotSection> carries;  ///< [owner]; length 0 where the ratio is 1
  int64_t slot_bytes = 0;
  ops::KvFormat kv_format = ops::KvFormat::kFp4;

  /// Cache bytes that one more token costs, without the state slot.
  double bytes_per_token() const { return static_cast<double>(block_bytes) / kBlockTokens; }
};

/// Source: model specification sections 5.1 and 9.
Layout make_layout(const ModelConfig& config);

}  // namespace di::cache
