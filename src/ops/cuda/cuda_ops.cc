#include "ops/cuda/cuda_ops.h"

#include <string>

#include "base/error.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/canonical_experts.h"
#include "ops/cuda/canonical_linear.h"
#include "ops/cuda/canonical_mhc.h"
#include "ops/cuda/canonical_rows.h"
#include "ops/cuda/canonical_weights.h"
#include "ops/cuda/compressor.h"
#include "ops/cuda/draft.h"
#include "ops/cuda/engram.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/index_keys.h"
#include "ops/cuda/index_select.h"
#include "ops/cuda/kv_store.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/moe.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/row_moves.h"
#include "ops/cuda/staging.h"
#include "ops/cuda/window_keys.h"

namespace di::ops {
namespace {

/// The ops that have only Hopper's kernels, where all others would run.
std::string missing_on(int major) {
  if (major != 10) return "";
  return "; linear, linear_q8, experts, sparse_attention and index_select multiply with wgmma, "
         "which "
         "it lacks";
}

/// Refuses machines whose device cannot run this build's kernels.
void require_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    const char* reason = code != cudaSuccess ? cudaGetErrorString(code) : "no device";
    throw Error(
        ErrorCode::kUnsupported,
        std::string("backend cuda: this machine has no CUDA device (") + reason +
            "); use --backend cpu"
    );
  }
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (properties.major != 9 || properties.minor != 0) {
    throw Error(
        ErrorCode::kUnsupported,
        std::string("backend cuda: ") + properties.name + " has compute capability " +
            std::to_string(properties.major) + "." + std::to_string(properties.minor) +
            ", this build has kernels for 9.0 (H100, H200)" + missing_on(properties.major) +
            "; use --backend cpu"
    );
  }
}

}  // namespace

const OpTable& cuda_ops() {
  static const bool checked = (require_device(), true);
  static_cast<void>(checked);
  static constexpr OpTable kTable = {
      .name = "cuda",
      .isa = "sm_90a",
      .memory = cuda::device_memory,
      .packed_bytes = cuda::packed_bytes,
      .pack = cuda::pack,
      .load = cuda::load,
      .pin = cuda::pin,
      .begin_loading = cuda::begin_loading,
      .end_loading = cuda::end_loading,
      .embed = cuda::embed,
      .copy_rows = cuda::copy_rows,
      .rows_finite = cuda::rows_finite,
      .quantize_fp8 = cuda::quantize_fp8,
      .linear_q8 = cuda::linear_q8,
      .linear = cuda::linear,
      .linear_set = cuda::linear_set,
      .rms_norm = cuda::rms_norm,
      .rope = cuda::rope,
      .engram_hash = cuda::engram_hash,
      .engram_lookup = cuda::engram_lookup,
      .engram_gate = cuda::engram_gate,
      .mhc_site = cuda::mhc_site,
      .mhc_mix = cuda::mhc_mix,
      .mhc_collapse = cuda::mhc_collapse,
      .mhc_expand = cuda::mhc_expand,
      .compressor_pool = cuda::compressor_pool,
      .carry_store = cuda::carry_store,
      .compressed_store = cuda::compressed_store,
      .quantize_mxfp4 = cuda::quantize_mxfp4,
      .index_key_store = cuda::index_key_store,
      .index_select = cuda::index_select,
      .window_records = cuda::window_records,
      .window_keys = cuda::window_keys,
      .sparse_attention = cuda::sparse_attention,
      .window_store = cuda::window_store,
      .route = cuda::route,
      .swiglu = cuda::swiglu,
      .experts = cuda::experts,
      .markov_round = cuda::markov_round,
  };
  return kTable;
}

const OpTable& canonical_cuda_ops() {
  static const OpTable kTable = [] {
    OpTable table = cuda_ops();
    table.isa = "sm_90a canonical";
    table.packed_bytes = cuda::canonical::packed_bytes;
    table.pack = cuda::canonical::pack;
    table.linear_q8 = cuda::canonical::linear_q8;
    table.linear = cuda::canonical::linear;
    table.linear_set = cuda::canonical::linear_set;
    table.rms_norm = cuda::canonical::rms_norm;
    table.engram_gate = cuda::canonical::engram_gate;
    table.mhc_site = cuda::canonical::mhc_site;
    table.mhc_mix = cuda::canonical::mhc_mix;
    table.index_select = cuda::canonical::index_select;
    table.window_keys = cuda::canonical::window_keys;
    table.sparse_attention = cuda::canonical::sparse_attention;
    table.experts = cuda::canonical::experts;
    table.markov_round = cuda::canonical::markov_round;
    return table;
  }();
  return kTable;
}

}  // namespace di::ops
