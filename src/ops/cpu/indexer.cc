#include "ops/cpu/indexer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "ops/cpu/top_k.h"
#include "ops/cpu/workers.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

/// Scores that a round may hold: 64 MiB.
constexpr int64_t kRoundScores = int64_t{16} << 20;

/// Key tiles of a piece of work.
constexpr int64_t kTilesAtOnce = 4;

/// Whether the kernels' int32 and fp32 hold every dot product of these vectors exactly.
bool is_exact(const Spread& keys, const Spread& query, int64_t groups) {
  constexpr int64_t kLargestGroupSum = 12 * 12 * kIndexGroup;
  constexpr int kUnitBias = 256;  // 127 for each scale, 1 for the halves of each
  const int shift = keys.shift + query.shift;
  const bool fits = shift <= 16 && (groups * kLargestGroupSum << shift) <= 0x7fffffff;
  const bool normal = keys.low >= 2 && query.low >= 2 && keys.low + query.low >= kUnitBias - 126;
  const bool finite =
      keys.high + query.high <= kUnitBias + 100 && std::max(keys.high, query.high) < 255;
  return fits && normal && finite;
}

/// The prepared queries of the rows of a round.
class Queries {
 public:
  Queries(Arena& scratch, const IndexSelect& op, int64_t rows)
      : op_(op),
        heads_(op.q_codes.dim(1)),
        dim_(op.q_codes.dim(2) * 2),
        values_(scratch.array<int8_t>(rows, heads_, dim_)),
        bias_(scratch.array<int32_t>(rows, heads_, dim_ / kIndexGroup)),
        shifts_(scratch.array<int32_t>(rows, heads_, dim_ / kIndexGroup)),
        units_(scratch.array<float>(rows, heads_)),
        weights_(scratch.array<float>(rows, heads_)),
        spreads_(scratch.array<Spread>(rows)) {}

  /// Prepares row `row` of the op as query `i`.
  void prepare(int64_t i, int64_t row) {
    Spread spread{.low = 255, .high = 0, .shift = 0};
    for (int64_t head = 0; head < heads_; ++head) {
      weights_(i, head) = to_float(op_.head_weights(row, head));
      prepare_values(&op_.q_codes(row, head, 0), &values_(i, head, 0), &bias_(i, head, 0));
      prepare_scales(i, head, &op_.q_scales(row, head, 0), spread);
    }
    spreads_(i) = spread;
  }

  IndexQuery query(int64_t i) const {
    return {
        .values = values_.row(i),
        .bias = bias_.row(i),
        .shifts = shifts_.row(i),
        .units = units_.row(i),
        .weights = weights_.row(i)};
  }
  const Spread& spread(int64_t i) const { return spreads_(i); }
  int64_t heads() const { return heads_; }
  int64_t dim() const { return dim_; }

 private:
  void prepare_values(const uint8_t* codes, int8_t* values, int32_t* bias) const {
    constexpr int8_t kHalves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int64_t group = 0; group < dim_ / kIndexGroup; ++group) {
      int32_t sum = 0;
      for (int64_t i = 0; i < kIndexGroup; ++i) {
        const int64_t column = group * kIndexGroup + query_column(i);
        const int8_t value = kHalves[nibble(codes, column)];
        values[group * kIndexGroup + i] = value;
        sum += value;
      }
      bias[group] = -12 * sum;
    }
  }

  /// As the kernels do for keys: groups of zeros do not count.
  void prepare_scales(int64_t i, int64_t head, const uint8_t* scales, Spread& spread) {
    const int8_t* values = &values_(i, head, 0);
    int32_t* shifts = &shifts_(i, head, 0);
    const int64_t groups = dim_ / kIndexGroup;
    const auto is_zero = [&](int64_t group) {
      const int8_t* first = values + group * kIndexGroup;
      return std::all_of(first, first + kIndexGroup, [](int8_t value) { return value == 0; });
    };
    int32_t low = 256;
    int32_t high = 0;
    for (int64_t group = 0; group < groups; ++group) {
      shifts[group] = is_zero(group) ? -1 : scales[group];
      if (shifts[group] < 0) continue;
      low = std::min(low, shifts[group]);
      high = std::max(high, shifts[group]);
    }
    if (low > high) low = high = 127;
    for (int64_t group = 0; group < groups; ++group)
      shifts[group] = shifts[group] < 0 ? 0 : shifts[group] - low;
    units_(i, head) = std::bit_cast<float>(static_cast<uint32_t>(low - 1) << 23);
    spread.low = std::min(spread.low, low);
    spread.high = std::max(spread.high, high);
    spread.shift = std::max(spread.shift, high - low);
  }

  const IndexSelect& op_;
  int64_t heads_;
  int64_t dim_;
  View<int8_t, 3> values_;
  View<int32_t, 3> bias_;
  View<int32_t, 3> shifts_;
  View<float, 2> units_;
  View<float, 2> weights_;
  View<Spread, 1> spreads_;
};

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
    exec_.pool.parallel_for(rows_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        select(row);
    });
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
    for_each_with_scratch(exec_, pieces, code_bytes + shift_bytes + unit_bytes, piece);
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

  void select(int64_t row) {
    const Run& run = runs_[run_of_[static_cast<std::size_t>(row)]];
    const float* scores = scores_.row(row);
    TopK best(op_.selected.dim(1));
    for (int64_t i = 0; i < seen(row, run); ++i)
      best.offer(static_cast<int32_t>(run.entry(i)), scores[i]);
    best.write(op_.selected.row(first_ + row));
    if (!op_.candidates_out.empty()) select_blocks(row, run);
  }

  /// The candidate source's blocks: by their best score, the newest block always first.
  void select_blocks(int64_t row, const Run& run) {
    const float* scores = scores_.row(row);
    const auto count = static_cast<std::size_t>(ceil_div(visible(row), op_.candidate_block_size));
    std::vector<float> blocks(count, -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < seen(row, run); ++i) {
      float& block = blocks[static_cast<std::size_t>(run.entry(i) / op_.candidate_block_size)];
      block = std::max(block, scores[i]);
    }
    if (!blocks.empty()) blocks.back() = std::numeric_limits<float>::infinity();
    TopK best(op_.candidates_out.dim(1));
    for (std::size_t block = 0; block < count; ++block)
      best.offer(static_cast<int32_t>(block), blocks[block]);
    best.write(op_.candidates_out.row(first_ + row));
  }

  const IndexKernels& kernels_;
  Exec& exec_;
  const IndexSelect& op_;
  int64_t first_;
  int64_t rows_;
  Queries queries_;
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
