// The passes over a whole row of logits, once for each instruction set.
//
// They are the same loops (row_loops.h) compiled several times, without fused products, so that all
// of them give the same bits. Pointers and sizes only: an inline function of the standard library
// compiled here for one instruction set could end up in everyone's program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace di::sampling {

/// The best entry of a row; of equal ones the first.
struct Peak {
  bool usable = false;  ///< no entry is a NaN or +∞, and one is above −∞; else nothing else counts
  std::size_t index = 0;
  double value = 0;
};

/// How far a logit lies below the best one: x = (top − logit) · inverse_temperature.
struct MassScale {
  double top = 0;
  double inverse_temperature = 1;

  double distance(double logit) const { return (top - logit) * inverse_temperature; }
};

/// Sums of mass_of(x) over a row.
struct Masses {
  uint64_t all = 0;
  uint64_t above_floor = 0;  ///< of the tokens that have at least the mass asked for
};

/// The distances x with low ≤ x < high.
struct Band {
  double low = 0;
  double high = 0;
};

/// The passes for one instruction set.
struct RowKernels {
  const char* name;
  Peak (*peak_of_floats)(const float* row, std::size_t size);
  Peak (*peak_of_doubles)(const double* row, std::size_t size);
  /// Σ exp(row[i] − top), in 16 interleaved sums that are added in order; no entry is above `top`.
  double (*sum_exp)(const float* row, std::size_t size, double top);
  /// The sums; no entry is above scale.top, and `floor` is the least mass of above_floor.
  Masses (*weigh)(const double* row, std::size_t size, const MassScale& scale, uint64_t floor);
  /// masses[i] = mass_of(x of row[i]).
  void (*weigh_each)(const double* row, std::size_t size, const MassScale& scale, uint64_t* masses);
  /// Writes the indices whose x is in the band, in ascending order, `size` of them at most, and
  /// returns their number.
  std::size_t (*gather
  )(const double* row, std::size_t size, const MassScale& scale, const Band& band, int32_t* out);
};

/// Those of the best instruction set that this processor has.
const RowKernels& row_kernels();

/// Every one that runs here, the plainest first.
std::vector<const RowKernels*> usable_row_kernels();

}  // namespace di::sampling
