#include "ops/cuda/linear_variants.cuh"

namespace di::ops::cuda {

template void run_rows<WeightFormat::kFp8>(Exec&, const LinearArgs&);
template void run_codes<WeightFormat::kFp8>(Exec&, const LinearArgs&);

}  // namespace di::ops::cuda
