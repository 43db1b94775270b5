#include "sched/draft_profile_shapes.h"

#include <algorithm>

namespace di::sched {
namespace {

/// Numbers of sequences between 1 and `most`: both ends, then powers of two from the middle out.
std::vector<int64_t> coarse_to_fine(int64_t most) {
  std::vector<int64_t> counts = {1};
  if (most > 1) counts.push_back(most);
  int64_t octaves = 0;
  while ((int64_t{2} << octaves) < most)
    ++octaves;
  int64_t stride = 1;
  while (2 * stride <= octaves)
    stride *= 2;
  for (; stride > 0; stride /= 2) {
    for (int64_t octave = stride; octave <= octaves; octave += 2 * stride)
      counts.push_back(int64_t{1} << octave);
  }
  return counts;
}

}  // namespace

std::vector<ProfileShape> profile_shapes(const ProfileLimits& limits) {
  std::vector<ProfileShape> shapes;
  const auto add = [&](int64_t sequences, int64_t rows_each) {
    const ProfileShape shape{sequences, rows_each, rows_each > 1};
    const bool known = std::any_of(shapes.begin(), shapes.end(), [&](const ProfileShape& other) {
      return other.sequences == sequences && other.rows_each == rows_each;
    });
    if (!known && shape.rows() <= limits.max_num_batched_tokens) shapes.push_back(shape);
  };
  const int64_t most_rows = 1 + limits.num_drafts;
  const std::vector<int64_t> counts = coarse_to_fine(limits.max_num_seqs);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    add(counts[i], 1);
    add(counts[i], most_rows);
    if (i == 0) {
      for (int64_t rows = 2; rows < most_rows; ++rows)
        add(1, rows);
    }
  }
  for (const int64_t count : counts)
    add(count, (1 + most_rows) / 2);
  return shapes;
}

bool fits_profile(const ProfileShape& shape, const DraftCosts& costs, double seconds_left) {
  if (costs.is_empty()) return seconds_left > 0;
  const CostTable table = costs.table();
  const CostTable::Point& last = table.points.back();
  StepShape step{.rows = shape.rows(), .drafting = shape.drafting ? shape.sequences : 0};
  double seconds = costs.expected(step);
  if (step.rows > last.rows)
    seconds *= static_cast<double>(step.rows) / static_cast<double>(last.rows);
  return seconds * static_cast<double>(kProfileRepeats) <= seconds_left;
}

}  // namespace di::sched
