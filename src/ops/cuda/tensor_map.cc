#include "ops/cuda/tensor_map.h"

#include <string>

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "ops/cuda/launch.h"

namespace di::ops::cuda {
namespace {

/// The driver's encoder, found at run time: nothing links against the driver itself.
decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto function = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(
        cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault, &found
        ),
        "cudaGetDriverEntryPoint(cuTensorMapEncodeTiled)"
    );
    if (found != cudaDriverEntryPointSuccess)
      throw Error(ErrorCode::kUnsupported, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(address);
  }();
  return function;
}

}  // namespace

CUtensorMap bf16_tile_map(
    const void* data, int64_t rows, int64_t groups, int64_t cols, int box_rows, int box_cols
) {
  CUtensorMap map{};
  const auto size = [](int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t dims[3] = {size(cols), size(groups), size(rows)};
  const cuuint64_t strides[2] = {size(cols * 2), size(groups * cols * 2)};
  const cuuint32_t box[3] = {
      static_cast<cuuint32_t>(box_cols), 1, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result = encoder(
  )(&map,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    3,
    const_cast<void*>(data),
    dims,
    strides,
    box,
    steps,
    CU_TENSOR_MAP_INTERLEAVE_NONE,
    box_cols == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(
        ErrorCode::kUnsupported,
        "cuTensorMapEncodeTiled refuses [" + std::to_string(rows) + ", " + std::to_string(groups) +
            ", " + std::to_string(cols) + "] with code " + std::to_string(result)
    );
  }
  return map;
}

}  // namespace di::ops::cuda
