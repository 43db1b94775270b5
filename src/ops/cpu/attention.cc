#include "ops/cpu/attention.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ops/canonical.h"
#include "ops/cpu/workers.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

constexpr int64_t kGroupBlock = kAttentionBlock * kHeadGroup;  // numbers of a block and head group
constexpr int64_t kPad = 8;  // doubles behind a decoded row, so that rows fall into all cache sets

/// The values of all E4M3 codes.
const float* e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (std::size_t code = 0; code < values.size(); ++code)
      values[code] = decode_e4m3(static_cast<uint8_t>(code));
    return values;
  }();
  return kValues.data();
}

/// What a row attends to: the used entries, and where each block of the list begins among them.
/// Blocks without a used entry are left out.
struct RowList {
  std::vector<ref::AttentionEntry> entries;
  std::vector<int64_t> block_begin;  // one more than there are blocks

  int64_t blocks() const { return std::ssize(block_begin) - 1; }
};

RowList list_row(const SparseAttention& op, int64_t row) {
  const std::vector<ref::AttentionEntry> places = ref::list_attention_entries(op, row);
  RowList list{.entries = {}, .block_begin = {0}};
  list.entries.reserve(places.size());
  for (std::size_t place = 0; place < places.size(); ++place) {
    if (places[place].record != nullptr) list.entries.push_back(places[place]);
    const bool ends_block = (place + 1) % kAttentionBlock == 0 || place + 1 == places.size();
    const int64_t end = std::ssize(list.entries);
    if (ends_block && end > list.block_begin.back()) list.block_begin.push_back(end);
  }
  return list;
}

/// Some rows of the op, taken through four passes. A pass is one parallel loop over pieces small
/// enough to occupy all threads even when there is a single row; how the passes are cut does not
/// touch any result, because every lane of a kernel stands alone.
class Round {
 public:
  Round(const AttentionKernels& kernels, Exec& exec, const SparseAttention& op, RowRange rows)
      : kernels_(kernels),
        exec_(exec),
        op_(op),
        first_(rows.begin),
        rows_(rows.end - rows.begin),
        heads_(op.q.dim(1)),
        dim_(op.q.dim(2)),
        groups_(ceil_div(heads_, kHeadGroup)),
        lists_(static_cast<std::size_t>(rows_)) {}

  void run() {
    const Arena::Scope scope(exec_.scratch);
    q_ = exec_.scratch.array<double>(rows_, groups_, dim_ * kHeadGroup);
    prepare();
    for (const RowList& list : lists_)
      blocks_ = std::max(blocks_, list.blocks());
    logits_ = exec_.scratch.array<float>(rows_, blocks_, groups_, kGroupBlock);
    p_ = exec_.scratch.array<double>(rows_, blocks_, groups_, kGroupBlock);
    decay_ = exec_.scratch.array<float>(rows_, blocks_, groups_ * kHeadGroup);
    denominators_ = exec_.scratch.array<float>(rows_, groups_ * kHeadGroup);
    score();
    normalise();
    mix();
  }

 private:
  const RowList& list(int64_t row) const { return lists_[static_cast<std::size_t>(row)]; }

  /// Lists the entries and turns the queries: channel by channel, heads side by side, in double.
  void prepare() {
    exec_.pool.parallel_for(rows_ * groups_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / groups_;
        const int64_t group = i % groups_;
        if (group == 0) lists_[static_cast<std::size_t>(row)] = list_row(op_, first_ + row);
        turn_queries(row, group);
      }
    });
  }

  void turn_queries(int64_t row, int64_t group) {
    double* out = &q_(row, group, 0);
    for (int64_t lane = 0; lane < kHeadGroup; ++lane) {
      const int64_t head = group * kHeadGroup + lane;
      const bf16* q = head < heads_ ? &op_.q(first_ + row, head, 0) : nullptr;
      for (int64_t d = 0; d < dim_; ++d) {
        out[d * kHeadGroup + lane] = q == nullptr ? 0.0 : static_cast<double>(to_float(q[d]));
      }
    }
  }

  /// Into how many parts to cut the head groups when there are `pieces` of work otherwise.
  int64_t group_parts(int64_t pieces) const {
    const int64_t wanted = ceil_div(2 * exec_.pool.num_threads(), std::max<int64_t>(1, pieces));
    return std::min(wanted, groups_);
  }

  /// The pieces of a pass that cuts every row into `row_pieces`. When the rows suffice, a thread
  /// takes half of one at a time, so that the row's queries or probabilities stay in its cache.
  Pieces pieces(int64_t row_pieces, int64_t scratch_bytes) const {
    const bool enough = rows_ >= 2 * exec_.pool.num_threads();
    return {
        .count = rows_ * row_pieces,
        .grain = enough ? std::max<int64_t>(1, ceil_div(row_pieces, 2)) : 1,
        .scratch_bytes = scratch_bytes};
  }

  /// Decodes channels of a block's entries into `values`.
  EntryTile decode(int64_t row, int64_t block, Channels channels, double* values) const {
    const RowList& entries = list(row);
    const auto at = static_cast<std::size_t>(block);
    const int64_t begin = entries.block_begin[at];
    const EntryTile tile = {
        .values = values,
        .stride = channels.end - channels.begin + kPad,
        .count = entries.block_begin[at + 1] - begin};
    for (int64_t i = 0; i < tile.count; ++i) {
      const ref::AttentionEntry& entry = entries.entries[static_cast<std::size_t>(begin + i)];
      double* out = values + i * tile.stride;
      if (entry.format == KvFormat::kFp8) {
        kernels_.decode_fp8(entry.record, dim_, channels, out);
      } else {
        kernels_.decode_fp4(entry.record, dim_, channels, e4m3_values(), out);
      }
    }
    return tile;
  }

  /// Logits, a piece for each row, block and part of the heads.
  void score() {
    const int64_t parts = group_parts(rows_ * blocks_);
    const int64_t bytes = kAttentionBlock * (dim_ + kPad) * int64_t{sizeof(double)};
    const auto piece = [&](int64_t index, std::byte* scratch) {
      const int64_t part = index % parts;
      const int64_t block = index / parts % blocks_;
      const int64_t row = index / parts / blocks_;
      if (block >= list(row).blocks()) return;
      const int64_t group = part * groups_ / parts;
      kernels_.score(
          {.entries = decode(row, block, {0, dim_}, reinterpret_cast<double*>(scratch)),
           .q = &q_(row, group, 0),
           .dim = dim_,
           .groups = (part + 1) * groups_ / parts - group,
           .scale = op_.scale,
           .logits = &logits_(row, block, group, 0)}
      );
    };
    for_each_with_scratch(exec_, pieces(blocks_ * parts, bytes), piece);
  }

  /// Probabilities, decays and denominators, a piece for each row and head group.
  void normalise() {
    exec_.pool.parallel_for(rows_ * groups_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        normalise_group(i / groups_, i % groups_);
    });
  }

  void normalise_group(int64_t row, int64_t group) {
    SoftmaxState state;
    std::fill_n(state.top, kHeadGroup, -1e30f);
    std::fill_n(state.denominator, kHeadGroup, 0.0f);
    const RowList& entries = list(row);
    for (int64_t block = 0; block < entries.blocks(); ++block) {
      const auto at = static_cast<std::size_t>(block);
      kernels_.softmax(
          {.logits = &logits_(row, block, group, 0),
           .count = entries.block_begin[at + 1] - entries.block_begin[at],
           .state = &state,
           .p = &p_(row, block, group, 0),
           .decay = &decay_(row, block, group * kHeadGroup)}
      );
    }
    for (int64_t lane = 0; lane < kHeadGroup; ++lane) {
      const int64_t head = group * kHeadGroup + lane;
      const float sink = head < heads_ ? exp_f32(op_.sink(head) - state.top[lane]) : 1.0f;
      denominators_(row, head) = state.denominator[lane] + sink;
    }
  }

  /// Outputs, a piece for each row, slice of the channels and part of the heads.
  void mix() {
    constexpr int64_t kSlice = 64;
    const int64_t slices = ceil_div(dim_, kSlice);
    const int64_t parts = group_parts(rows_ * slices);
    const int64_t tile_bytes = kAttentionBlock * (kSlice + kPad) * int64_t{sizeof(double)};
    const int64_t sum_bytes = groups_ * kSlice * kHeadGroup * int64_t{sizeof(float)};
    const auto piece = [&](int64_t index, std::byte* scratch) {
      const int64_t part = index % parts;
      const int64_t slice = index / parts % slices;
      mix_slice(
          index / parts / slices,
          {slice * kSlice, std::min(dim_, (slice + 1) * kSlice)},
          {part * groups_ / parts, (part + 1) * groups_ / parts},
          reinterpret_cast<double*>(scratch),
          reinterpret_cast<float*>(scratch + tile_bytes)
      );
    };
    for_each_with_scratch(exec_, pieces(slices * parts, tile_bytes + sum_bytes), piece);
  }

  void mix_slice(int64_t row, Channels channels, RowRange groups, double* values, float* sums) {
    const int64_t width = channels.end - channels.begin;
    std::fill_n(sums, (groups.end - groups.begin) * width * kHeadGroup, 0.0f);
    for (int64_t block = 0; block < list(row).blocks(); ++block) {
      kernels_.mix(
          {.entries = decode(row, block, channels, values),
           .p = &p_(row, block, groups.begin, 0),
           .decay = &decay_(row, block, groups.begin * kHeadGroup),
           .p_stride = kGroupBlock,
           .channels = width,
           .groups = groups.end - groups.begin,
           .sums = sums}
      );
    }
    for (int64_t group = groups.begin; group < groups.end; ++group)
      write(row, channels, group, sums + (group - groups.begin) * width * kHeadGroup);
  }

  /// Divides one group's sums and turns them back to head after head.
  void write(int64_t row, Channels channels, int64_t group, const float* sums) {
    constexpr int64_t kAtOnce = 32;
    uint16_t out[kAtOnce * kHeadGroup];
    const int64_t heads = std::min(kHeadGroup, heads_ - group * kHeadGroup);
    for (int64_t c = channels.begin; c < channels.end; c += kAtOnce) {
      const float* from = sums + (c - channels.begin) * kHeadGroup;
      kernels_.finish(from, &denominators_(row, group * kHeadGroup), kAtOnce, out);
      for (int64_t lane = 0; lane < heads; ++lane) {
        bf16* o = &op_.o(first_ + row, group * kHeadGroup + lane, c);
        for (int64_t i = 0; i < kAtOnce; ++i)
          o[i] = {out[i * kHeadGroup + lane]};
      }
    }
  }

  const AttentionKernels& kernels_;
  Exec& exec_;
  const SparseAttention& op_;
  int64_t first_;
  int64_t rows_;
  int64_t heads_;
  int64_t dim_;
  int64_t groups_;
  int64_t blocks_ = 0;  // most blocks of a row
  std::vector<RowList> lists_;
  View<double, 3> q_;            // [rows, groups, dim · kHeadGroup]
  View<float, 4> logits_;        // [rows, blocks, groups, kGroupBlock]
  View<double, 4> p_;            // the same
  View<float, 3> decay_;         // [rows, blocks, groups · kHeadGroup]
  View<float, 2> denominators_;  // [rows, groups · kHeadGroup]
};

}  // namespace

void sparse_attention(const AttentionKernels& kernels, Exec& exec, const SparseAttention& op) {
  // Enough rows for every thread, few enough that what passes hand on stays in the caches.
  const int64_t at_once = std::max<int64_t>(8, 2 * exec.pool.num_threads());
  for (int64_t row = 0; row < op.q.dim(0); row += at_once) {
    Round(kernels, exec, op, {row, std::min(op.q.dim(0), row + at_once)}).run();
  }
}

}  // namespace di::ops::cpu
