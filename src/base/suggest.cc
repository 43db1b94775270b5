#include "base/suggest.h"

#include <algorithm>
#include <numeric>

namespace di {
namespace {

/// Levenshtein distance.
std::size_t num_edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // edits from the part of `a` so far to b[0, j)
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view written, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 100;  // nobody meant a name this long
  if (written.size() > kLongest) return "";
  const std::string* best = nullptr;
  std::size_t least = 0;
  for (const std::string& name : known) {
    const std::size_t edits = num_edits(written, name);
    if (edits * 3 > name.size() || (best != nullptr && edits >= least)) continue;
    best = &name;
    least = edits;
  }
  return best == nullptr ? "" : "; did you mean " + *best + "?";
}

}  // namespace di
