#include "ops/cpu/indexer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/cpu/index_queries.h"
#include "ops/cpu/top_k.h"
#include "ops/cpu/workers.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kAlways = std::numeric_limits<float>::infinity();

/// Scores that a round may hold: 64 MiB.
constexpr int64_t kRoundScores = int64_t{16} << 20;

/// Key tiles of a piece of work.
constexpr int64_t kTilesAtOnce = 4;

/// Rows that score the same list of entries; each only as many of its first as it may see.
struct Run {
  int64_t first_row = 0;  // of the round
  int64_t num_rows = 0;
  const int32_t* block_table = nullptr;
  int64_t count = 0;             // entries, of the row that sees most
  std::vector<int32_t> entries;  // their positions; empty: 0 ... count − 1
  int64_t first_piece = 0;       // of the round's scoring work

  int64_t entry(int64_t i) const {
    return entries.empty() ? i : entries[static_cast<std::size_t>(i)];
  }
  int64_t pieces() const { return ceil_div(count, kKeyTile * kTilesAtOnce); }
};

/// Rows [begin, end) of the op: all scores, then the selections.
class Round {
 public:
  Round(const IndexKernels& kernels, Exec& exec, const IndexSelect& op, RowRange rows)
      : kernels_(kernels),
        exec_(exec),
        op_(op),
        first_(rows.begin),
        rows_(rows.end - rows.begin),
        queries_(exec.scratch, op, rows_) {
    for (int64_t row = 0; row < rows_; ++row)
      add_row(row);
  }

  void run() {
    exec_.pool.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        queries_.prepare(row, first_ + row);
    });
    int64_t width = 0;
    for (const Run& run : runs_)
      width = std::max(width, align_up(run.count, kKeyTile));
    scores_ = exec_.scratch.array<float>(rows_, width);
    score();
    select();
  }

 private:
  const SequenceRows& sequence(int64_t row) const {
    return op_.rows.sequences[static_cast<std::size_t>(op_.rows.sequence_of(first_ + row))];
  }
  int64_t visible(int64_t row) const { return (op_.rows.positions(first_ + row) + 1) / op_.ratio; }

  /// Extends the last run when the row scores the same entries, or begins another.
  void add_row(int64_t row) {
    const bool joins = row > 0 && op_.candidates_in.empty() &&
                       op_.rows.sequence_of(first_ + row) == op_.rows.sequence_of(first_ + row - 1);
    if (!joins) {
      const int64_t pieces = runs_.empty() ? 0 : runs_.back().first_piece + runs_.back().pieces();
      Run& run = runs_.emplace_back();
      run.first_row = row;
      run.block_table = sequence(row).block_table;
      run.first_piece = pieces;
    }
    Run& run = runs_.back();
    ++run.num_rows;
    run_of_.push_back(runs_.size() - 1);
    if (op_.candidates_in.empty()) {
      run.count = std::max(run.count, visible(row));
    } else {
      list_candidates(row, run);
    }
  }

  void list_candidates(int64_t row, Run& run) const {
    const int64_t size = op_.candidate_block_size;
    for (int64_t i = 0; i < op_.candidates_in.dim(1); ++i) {
      const int64_t block = op_.candidates_in(first_ + row, i);
      if (block < 0) break;
      for (int64_t j = block * size; j < std::min((block + 1) * size, visible(row)); ++j)
        run.entries.push_back(static_cast<int32_t>(j));
    }
    run.count = std::ssize(run.entries);
  }

  /// How many of its run's entries a row sees.
  int64_t seen(int64_t row, const Run& run) const {
    return run.entries.empty() ? std::min(run.count, visible(row)) : run.count;
  }

  /// Scores, a piece for each few tiles of keys; the keys are unpacked once for all rows of a run.
  void score() {
    const int64_t dim = queries_.dim();
    const int64_t code_bytes = dim * kKeyTile;
    const int64_t shift_bytes = dim / kIndexGroup * kKeyTile * int64_t{sizeof(int32_t)};
    const int64_t unit_bytes = kKeyTile * int64_t{sizeof(float)};
    const auto piece = [&](int64_t index, std::byte* scratch) {
      const auto after =
          std::upper_bound(runs_.begin(), runs_.end(), index, [](int64_t i, const Run& run) {
            return i < run.first_piece;
          });
      const Run& run = *(after - 1);
      KeyTile tile{
          .codes = reinterpret_cast<uint8_t*>(scratch),
          .shifts = reinterpret_cast<int32_t*>(scratch + code_bytes),
          .units = reinterpret_cast<float*>(scratch + code_bytes + shift_bytes),
          .spread = {}};
      const int64_t begin = (index - run.first_piece) * kTilesAtOnce * kKeyTile;
      const int64_t end = std::min(run.count, begin + kTilesAtOnce * kKeyTile);
      for (int64_t at = begin; at < end; at += kKeyTile)
        score_tile(run, at, tile);
    };
    const int64_t pieces = runs_.back().first_piece + runs_.back().pieces();
    for_each_with_scratch(
        exec_, {.count = pieces, .scratch_bytes = code_bytes + shift_bytes + unit_bytes}, piece
    );
  }

  /// Entries `at` ... at + 63 of a run for all its rows; places behind the last repeat it.
  void score_tile(const Run& run, int64_t at, KeyTile& tile) {
    const uint8_t* codes[kKeyTile];
    const uint8_t* scales[kKeyTile];
    for (int64_t i = 0; i < kKeyTile; ++i) {
      const int64_t j = run.entry(std::min(at + i, run.count - 1));
      const ref::IndexKey key = ref::index_key(op_.keys, run.block_table, j);
      codes[i] = key.codes;
      scales[i] = key.scales;
    }
    kernels_.pack(codes, scales, queries_.dim(), tile);
    for (int64_t row = run.first_row; row < run.first_row + run.num_rows; ++row) {
      if (at >= seen(row, run)) continue;
      float* scores = &scores_(row, at);
      if (is_exact(tile.spread, queries_.spread(row), queries_.dim() / kIndexGroup)) {
        kernels_.score(tile, queries_.query(row), queries_.heads(), queries_.dim(), scores);
      } else {
        score_by_reference(run, row, at, scores);
      }
    }
  }

  void score_by_reference(const Run& run, int64_t row, int64_t at, float* scores) {
    const int64_t count = std::min(kKeyTile, seen(row, run) - at);
    for (int64_t i = 0; i < count; ++i)
      scores[i] = ref::index_score(op_, first_ + row, run.block_table, run.entry(at + i));
  }

  /// The best of some of a row's entries and of its blocks.
  struct Best {
    TopK entries;
    TopK blocks;
  };

  /// Selections, a piece for each row; rows that are too few for the threads are cut into segments,
  /// whose selections are merged.
  void select() {
    const int64_t threads = exec_.pool.num_threads();
    const bool cut = op_.candidates_in.empty() && rows_ < threads;
    const int64_t segments = cut ? ceil_div(threads, rows_) : 1;
    std::vector<Best> parts(static_cast<std::size_t>(rows_ * segments), Best{TopK(0), TopK(0)});
    exec_.pool.parallel_for(std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / segments;
        Best best = select_segment(row, i % segments, segments);
        if (segments == 1) {
          write(row, best);
        } else {
          parts[static_cast<std::size_t>(i)] = std::move(best);
        }
      }
    });
    for (int64_t row = 0; segments > 1 && row < rows_; ++row) {
      Best best{TopK(op_.selected.dim(1)), TopK(op_.candidates_out.dim(1))};
      for (int64_t segment = 0; segment < segments; ++segment) {
        const Best& part = parts[static_cast<std::size_t>(row * segments + segment)];
        best.entries.offer_all(part.entries);
        best.blocks.offer_all(part.blocks);
      }
      write(row, best);
    }
  }

  void write(int64_t row, Best& best) {
    best.entries.write(op_.selected.row(first_ + row));
    if (!op_.candidates_out.empty()) best.blocks.write(op_.candidates_out.row(first_ + row));
  }

  /// Segment `segment` of `segments`; borders between segments are borders of candidate blocks.
  Best select_segment(int64_t row, int64_t segment, int64_t segments) const {
    const Run& run = runs_[run_of_[static_cast<std::size_t>(row)]];
    const int64_t size = std::max<int64_t>(1, op_.candidate_block_size);
    const int64_t step = align_up(ceil_div(seen(row, run), segments), size);
    const RowRange part = {
        std::min(seen(row, run), segment * step), std::min(seen(row, run), (segment + 1) * step)};
    Best best{TopK(op_.selected.dim(1)), TopK(op_.candidates_out.dim(1))};
    const float* scores = scores_.row(row);
    if (op_.candidates_in.empty()) {
      for (int64_t i = part.begin; i < part.end; ++i)
        best.entries.offer(static_cast<int32_t>(i), scores[i]);
      if (!op_.candidates_out.empty()) offer_blocks(row, part, best.blocks);
    } else {
      for (int64_t i = part.begin; i < part.end; ++i)
        best.entries.offer(run.entries[static_cast<std::size_t>(i)], scores[i]);
      if (!op_.candidates_out.empty()) offer_listed_blocks(row, run, best.blocks);
    }
    return best;
  }

  /// The candidate source's blocks: by their best score, the newest block always first.
  void offer_blocks(int64_t row, RowRange part, TopK& best) const {
    const float* scores = scores_.row(row);
    const int64_t size = op_.candidate_block_size;
    const int64_t newest = (visible(row) - 1) / size;
    if (part.begin == part.end) return;
    for (int64_t block = part.begin / size; block * size < part.end; ++block) {
      float top = block == newest ? kAlways : kHidden;
      for (int64_t i = block * size; i < std::min(part.end, (block + 1) * size); ++i)
        top = std::max(top, scores[i]);
      best.offer(static_cast<int32_t>(block), top);
    }
  }

  /// The same when only some entries were scored.
  void offer_listed_blocks(int64_t row, const Run& run, TopK& best) const {
    const int64_t size = op_.candidate_block_size;
    if (visible(row) == 0) return;
    std::vector<float> blocks(static_cast<std::size_t>(ceil_div(visible(row), size)), kHidden);
    for (std::size_t i = 0; i < run.entries.size(); ++i) {
      float& block = blocks[static_cast<std::size_t>(run.entries[i] / size)];
      block = std::max(block, scores_(row, i));
    }
    blocks.back() = kAlways;
    for (std::size_t block = 0; block < blocks.size(); ++block)
      best.offer(static_cast<int32_t>(block), blocks[block]);
  }

  const IndexKernels& kernels_;
  Exec& exec_;
  const IndexSelect& op_;
  int64_t first_;
  int64_t rows_;
  IndexQueries queries_;
  std::vector<Run> runs_;
  std::vector<std::size_t> run_of_;  // by row
  View<float, 2> scores_;            // [rows, most entries]: in the order of the row's run
};

/// The most entries that any row may score.
int64_t most_entries(const IndexSelect& op) {
  int64_t most = 1;
  for (int64_t row = 0; row < op.selected.dim(0); ++row)
    most = std::max(most, (op.rows.positions(row) + 1) / op.ratio);
  if (op.candidates_in.empty()) return most;
  return std::min(most, op.candidates_in.dim(1) * op.candidate_block_size);
}

}  // namespace

void index_select(const IndexKernels& kernels, Exec& exec, const IndexSelect& op) {
  const int64_t rows = op.selected.dim(0);
  const int64_t at_once = std::max<int64_t>(1, kRoundScores / most_entries(op));
  for (int64_t row = 0; row < rows; row += at_once) {
    const Arena::Scope scope(exec.scratch);
    Round(kernels, exec, op, {row, std::min(rows, row + at_once)}).run();
  }
}

}  // namespace di::ops::cpu
