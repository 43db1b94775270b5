#include "model/row_set.h"

#include <algorithm>

#include "base/check.h"

namespace di::model {
namespace {

NewEntries entries_of(const RowSet& rows, int64_t ratio) {
  NewEntries list;
  list.ratio = ratio;
  for (std::size_t s = 0; s < rows.sequences.size(); ++s) {
    const ops::SequenceRows& sequence = rows.sequences[s];
    const int64_t end = (sequence.start + sequence.num_rows) / ratio;
    for (int64_t j = sequence.start / ratio; j < end; ++j) {
      const int64_t last_token = (j + 1) * ratio - 1;
      list.planned.push_back(
          {.row = sequence.first_row + last_token - sequence.start,
           .sequence = static_cast<int64_t>(s),
           .j = j}
      );
      list.planned_positions.push_back(j * ratio);
    }
  }
  return list;
}

/// Entries that sequences of `size` complete at most: n rows of one end in no more than ⌈n /
/// ratio⌉.
int64_t most_entries(const RowSetSize& size, int64_t ratio) {
  return std::min(size.rows, (size.rows + size.sequences * (ratio - 1)) / ratio);
}

}  // namespace

void RowSet::list_entries(std::span<const int64_t> ratios) {
  for (const int64_t ratio : ratios)
    entries.push_back(entries_of(*this, ratio));
}

void RowSet::pad(const RowSetSize& size) {
  const RowSetSize own = this->size();
  DI_CHECK(
      is_image.empty() && own.rows <= size.rows && own.sequences <= size.sequences &&
          own.most_rows <= size.most_rows && own.max_length <= size.max_length,
      "a set without images is filled up to a size that it fits"
  );
  const auto num_rows = static_cast<std::size_t>(size.rows);
  const auto source = static_cast<std::size_t>(shortest_row());
  ops::SequenceRows none = sequences[0];
  none.num_rows = 0;
  sequences.resize(static_cast<std::size_t>(size.sequences), none);
  sequence_of.resize(num_rows, sequence_of[source]);
  positions.resize(num_rows, positions[source]);
  for (NewEntries& list : entries) {
    const auto count = static_cast<std::size_t>(most_entries(size, list.ratio));
    list.planned.resize(count, {.row = -1, .sequence = 0, .j = 0});
    list.planned_positions.resize(count, 0);
  }
}

int64_t RowSet::placed_bytes() const {
  using ops::Placer;
  const auto num_rows = std::ssize(positions);
  int64_t bytes = Placer::bytes_of<ops::SequenceRows>(std::ssize(sequences)) +
                  Placer::bytes_of<int32_t>(num_rows) + Placer::bytes_of<int64_t>(num_rows) +
                  Placer::bytes_of<uint8_t>(num_rows);
  for (const NewEntries& list : entries) {
    const auto count = std::ssize(list.planned);
    bytes += Placer::bytes_of<ops::NewEntry>(count) + Placer::bytes_of<int64_t>(count);
  }
  return bytes;
}

void RowSet::place(ops::Placer& placer, const RowSetSize& size) {
  const View<ops::SequenceRows, 1> placed = placer.place(sequences);
  view_ = {
      .sequences = {placed.data, sequences.size()},
      .sequence_of = placer.place(sequence_of),
      .positions = placer.place(positions),
      .max_length = size.max_length,
      .most_rows = size.most_rows};
  image_view_ = placer.place(is_image);
  for (NewEntries& list : entries) {
    list.entries = {placer.place(list.planned).data, list.planned.size()};
    list.positions = placer.place(list.planned_positions);
  }
}

RowSetSize RowSet::size() const {
  RowSetSize size{.rows = count(), .sequences = std::ssize(sequences)};
  for (const ops::SequenceRows& sequence : sequences)
    size.most_rows = std::max(size.most_rows, sequence.num_rows);
  for (const int64_t position : positions)
    size.max_length = std::max(size.max_length, position + 1);
  return size;
}

int64_t RowSet::shortest_row() const {
  return std::min_element(positions.begin(), positions.end()) - positions.begin();
}

const NewEntries& RowSet::new_entries(int64_t ratio) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [ratio](const NewEntries& list) {
    return list.ratio == ratio;
  });
  DI_CHECK(found != entries.end(), "entries are listed for every ratio of the model");
  return *found;
}

int64_t replay_begin(const Replay& replay, int64_t prompt_length) {
  if (replay.mode == Replay::Mode::kOff) return 0;
  return std::max<int64_t>(0, prompt_length - replay.keep);
}

RowSet all_rows(const Step& step) {
  RowSet rows;
  const bool any_image =
      std::any_of(step.sequences.begin(), step.sequences.end(), [](const SequenceInput& input) {
        return !input.embeddings.empty();
      });
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceInput& input = step.sequences[s];
    const int64_t count = input.num_rows();
    rows.sequences.push_back(
        {.first_row = rows.count(),
         .num_rows = count,
         .start = input.start,
         .slot = input.slot,
         .block_table = input.block_table,
         .window_begin = 0,
         .tokens = input.tokens.data(),
         .is_image = input.is_image.empty() ? nullptr : input.is_image.data()}
    );
    for (int64_t i = 0; i < count; ++i) {
      rows.sequence_of.push_back(static_cast<int32_t>(s));
      rows.positions.push_back(input.start + i);
      if (any_image) rows.is_image.push_back(0);
    }
    for (const RowEmbedding& given : input.embeddings) {
      rows.is_image[static_cast<std::size_t>(rows.sequences.back().first_row + given.row)] = 1;
    }
  }
  return rows;
}

RowSet draft_rows(const DraftStep& step, const Replay& replay, int64_t num_sequences) {
  const auto shortest = std::min_element(
      step.sequences.begin(),
      step.sequences.end(),
      [](const DraftInput& a, const DraftInput& b) { return a.tokens.size() < b.tokens.size(); }
  );
  const auto own = std::ssize(step.sequences);
  RowSet rows;
  for (int64_t s = 0; s < std::max(own, num_sequences); ++s) {
    const DraftInput& input = s < own ? step.sequences[static_cast<std::size_t>(s)] : *shortest;
    const int64_t start = std::ssize(input.tokens) - 1;
    rows.sequences.push_back(
        {.first_row = rows.count(),
         .num_rows = step.length,
         .start = start,
         .slot = input.slot,
         .window_begin = replay_begin(replay, input.prompt_length),
         .tokens = input.tokens.data()}
    );
    for (int64_t i = 0; i < step.length; ++i) {
      rows.sequence_of.push_back(static_cast<int32_t>(s));
      rows.positions.push_back(start + i);
    }
  }
  return rows;
}

RowSet rows_after_border(
    const Step& step, const Replay& replay, const RowSet& rows, std::vector<int64_t>& sources
) {
  const bool compact = replay.mode == Replay::Mode::kCompact;
  RowSet kept;
  for (std::size_t s = 0; s < rows.sequences.size(); ++s) {
    ops::SequenceRows sequence = rows.sequences[s];
    const int64_t begin = replay_begin(replay, step.sequences[s].prompt_length);
    const int64_t skipped =
        compact ? std::clamp<int64_t>(begin - sequence.start, 0, sequence.num_rows) : 0;
    const int64_t first_source = sequence.first_row + skipped;
    sequence.first_row = kept.count();
    sequence.num_rows -= skipped;
    sequence.start += skipped;
    sequence.window_begin = begin;
    kept.sequences.push_back(sequence);
    for (int64_t i = 0; i < sequence.num_rows; ++i) {
      const auto source = static_cast<std::size_t>(first_source + i);
      sources.push_back(first_source + i);
      kept.sequence_of.push_back(rows.sequence_of[source]);
      kept.positions.push_back(rows.positions[source]);
      if (!rows.is_image.empty()) kept.is_image.push_back(rows.is_image[source]);
    }
  }
  return kept;
}

}  // namespace di::model
