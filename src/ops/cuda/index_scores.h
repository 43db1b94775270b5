// Scores of compressed entries: the first half of index_select. A score is stored as an order key:
// an unsigned 16-bit number that sorts like the bf16 score, 0 for what must never be selected.
#pragma once

#include "ops/exec.h"
#include "ops/indexer.h"

namespace di::ops::cuda {

/// Scores of a row are filled up to a whole number of vectors of eight at least, and of these at
/// most: places behind the row's last entry hold key 0.
inline constexpr int64_t kScoreTile = 128;

/// Neighbouring places whose best key is kept beside them: what 16 bytes hold.
inline constexpr int kVectorKeys = 8;

/// Order keys of a chunk of rows. A place is an entry; for a consumer of candidates place p is
/// entry p mod block size of candidate block p / block size.
struct IndexScores {
  uint16_t* keys = nullptr;   // [rows, stride]
  uint16_t* bests = nullptr;  // [rows, stride / kVectorKeys]: of every vector of places
  int64_t stride = 0;         ///< a multiple of kScoreTile
  int64_t first_row = 0;      ///< of the op's rows
  int64_t rows = 0;
};

/// Places that a row of `op` can have at most: entries below Rows::max_length, or candidates.
int64_t max_places(const IndexSelect& op);

/// Scores all places of the rows of `scores`. The fast kernel takes up to 32 heads of 128 channels
/// and blocks of 64 entries or a power of two above; whatever else goes through a plain one.
void score_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores);

/// The same by the plain kernel, whose arithmetic is the reference's.
void score_entries_plainly(Exec& exec, const IndexSelect& op, const IndexScores& scores);

}  // namespace di::ops::cuda
