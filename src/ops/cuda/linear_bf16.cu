#include "ops/cuda/linear_variants.cuh"

namespace di::ops::cuda {

template void run_rows<WeightFormat::kBf16>(Exec&, const LinearArgs&);

}  // namespace di::ops::cuda
