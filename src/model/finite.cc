// Which sequences have gone astray. A NaN in a row may end in the quantisation of the next linear,
// where it becomes a wrong number that nobody notices; the residual streams always keep it.
#include "model/activations.h"

namespace di::model {
namespace {

bool all_finite(const bf16* values, int64_t count) {
  constexpr uint16_t kExponent = 0x7F80;  // all ones: infinite or not a number
  int64_t bad = 0;
  for (int64_t i = 0; i < count; ++i)
    bad += (values[i].bits & kExponent) == kExponent ? 1 : 0;
  return bad == 0;
}

}  // namespace

void note_finite(const Pass& pass, Activations& act) {
  std::vector<uint8_t> row_is_finite(static_cast<std::size_t>(act.rows.count()));
  pass.exec.pool.parallel_for(act.rows.count(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      row_is_finite[static_cast<std::size_t>(row)] = all_finite(act.h.row(row), act.h.stride());
    }
  });
  for (std::size_t row = 0; row < row_is_finite.size(); ++row) {
    if (row_is_finite[row] == 0)
      act.finite[static_cast<std::size_t>(act.rows.sequence_of[row])] = 0;
  }
}

}  // namespace di::model
