// RowSet: which rows a stretch of layers computes, as the processor plans them and as ops read
// them.
#pragma once

#include <vector>

#include "model/step.h"
#include "ops/place.h"
#include "ops/rows.h"

namespace di::model {

/// The compressed entries of one ratio that the rows of a set complete.
struct NewEntries {
  int64_t ratio = 0;
  std::vector<ops::NewEntry> planned;
  std::vector<int64_t> planned_positions;
  std::span<const ops::NewEntry> entries;  ///< `planned`, where ops read
  View<const int64_t, 1> positions;        ///< [entries]: of the first token, the rotary position
};

/// What the launches of ops over a set depend on, besides the model.
struct RowSetSize {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t most_rows = 0;   ///< no sequence has more
  int64_t max_length = 0;  ///< no row's position reaches it
};

/// Rows by sequence and one by one. The vectors are the plan; place() puts them where the ops of a
/// backend read, which may be the vectors themselves: a placed set stays as it is.
struct RowSet {
  std::vector<ops::SequenceRows> sequences;
  std::vector<int32_t> sequence_of;
  std::vector<int64_t> positions;
  std::vector<uint8_t> is_image;    ///< [rows]; empty when the step has no image rows
  std::vector<NewEntries> entries;  ///< one for each ratio that list_entries() was given

  int64_t count() const { return static_cast<int64_t>(positions.size()); }

  /// Lists the entries of each ratio that the rows complete.
  void list_entries(std::span<const int64_t> ratios);

  /// Fills the set up to `size`: rows that repeat one of the shortest sequence, sequences without
  /// rows, entries that are none. None of its rows may be an image.
  void pad(const RowSetSize& size);

  /// Bytes that place() needs.
  int64_t placed_bytes() const;

  /// Puts everything where ops read; `size` is at least that of the set.
  void place(ops::Placer& placer, const RowSetSize& size);

  /// The set as it is.
  RowSetSize size() const;

  const ops::Rows& view() const { return view_; }
  const View<const uint8_t, 1>& image_view() const { return image_view_; }
  /// The entries of a ratio that list_entries() was given.
  const NewEntries& new_entries(int64_t ratio) const;

 private:
  /// The row whose position is the lowest, which costs the least to compute again.
  int64_t shortest_row() const;

  ops::Rows view_;
  View<const uint8_t, 1> image_view_;
};

/// All rows of a step.
RowSet all_rows(const Step& step);

/// The rows of a draft: `length` a sequence, the anchor's and those of the noise behind it. Up to
/// `num_sequences` the shortest sequence drafts again and again.
RowSet draft_rows(const DraftStep& step, const Replay& replay, int64_t num_sequences);

/// First position whose rows pass through the decoder layers in full.
int64_t replay_begin(const Replay& replay, int64_t prompt_length);

/// The rows at or after each sequence's replay border, with windows that end there; `sources` gets
/// the row of `rows` that each kept one was.
RowSet rows_after_border(
    const Step& step, const Replay& replay, const RowSet& rows, std::vector<int64_t>& sources
);

}  // namespace di::model
