// Three launches: the lists of each expert's rows (expert_lists.h), one persistent kernel for all
// products, and the sum over each row's experts.
#include <string>

#include "base/error.h"
#include "ops/cuda/expert_consumer.cuh"
#include "ops/cuda/expert_producer.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

template <class Shape>
__global__ void __launch_bounds__(kExpertThreads, Shape::kCtas)
    experts_kernel(const __grid_constant__ ExpertArguments op) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& memory = *reinterpret_cast<ExpertMemory<Shape>*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) memory.init_barriers();
  __syncthreads();
  wait_for_previous_kernels();
  let_next_kernel_start();
  if (thread < 32 * kConsumerWarps) {
    if constexpr (Shape::kWide) raise_registers<Shape::kConsumerRegisters>();
    Consumer<Shape>(op, memory).run();
  } else {
    if constexpr (Shape::kWide) lower_registers<Shape::kProducerRegisters>();
    const int producer = thread - 32 * kConsumerWarps;
    if (producer < kConverters) {
      Converter<Shape>(op, memory, producer).run();
    } else if (producer == kConverters) {
      run_loader<Shape>(op, memory);
    }
  }
}

/// Sums each row's parts in the order of slots, in fp32.
__global__ void __launch_bounds__(256) combine_experts(
    bf16* y, const uint16_t* parts, const int32_t* ids, int experts, int k, int hidden
) {
  wait_for_previous_kernels();
  const int64_t row = blockIdx.y;
  const int channel = static_cast<int>(blockIdx.x * 256 + threadIdx.x) * kVector;
  if (channel >= hidden) return;
  const auto* part = reinterpret_cast<const bf16*>(parts) + row * (k + 1) * hidden + channel;
  float sum[kVector] = {};
  for (int slot = 0; slot <= k; ++slot, part += hidden) {
    if (slot < k && static_cast<unsigned>(ids[row * k + slot]) >= static_cast<unsigned>(experts))
      continue;
    float x[kVector];
    unpack(load_vector(part), x);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      sum[i] += x[i];
  }
  store_vector(y + row * hidden + channel, pack(sum));
}

/// A launch that may begin while the kernel before it ends; the kernel waits for it by itself.
template <class... Parameters, class... Values>
void launch_early(
    void (*kernel)(Parameters...),
    dim3 grid,
    int threads,
    int shared,
    cudaStream_t stream,
    Values... values
) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, values...), "experts");
}

/// Checks one matrix of all experts and says where they lie.
ExpertMatrix matrix_of(
    const Experts& op, Weight ExpertWeights::*which, const char* name, int64_t rows, int64_t cols
) {
  const auto check_shape = [&](const Weight& w, WeightFormat format) {
    if (w.rows == rows && w.cols == cols && w.format == format && w.scales == nullptr) return;
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name + ": expected packed matrices of " + std::to_string(rows) +
            " x " + std::to_string(cols) + " in one format, found " + std::to_string(w.rows) +
            " x " + std::to_string(w.cols)
    );
  };
  const Weight& shared = op.shared.*which;
  check_shape(shared, op.shared.w1.format);
  ExpertMatrix matrix{nullptr, 0, reinterpret_cast<const uint8_t*>(shared.data)};
  if (op.experts.empty()) return matrix;
  const Weight& first = op.experts.front().*which;
  const Weight& last = op.experts.back().*which;
  check_shape(first, op.experts.front().w1.format);
  check_shape(last, op.experts.front().w1.format);
  matrix.routed = reinterpret_cast<const uint8_t*>(first.data);
  const int64_t steps = std::ssize(op.experts) - 1;
  if (steps == 0) return matrix;
  matrix.stride = (op.experts[1].*which).data - first.data;
  if (first.data + steps * matrix.stride != last.data) {
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name +
            ": expected the experts' matrices at a constant distance, found the last one elsewhere"
    );
  }
  return matrix;
}

bool is_fp8(const Weight& w) {
  if (w.format == WeightFormat::kFp8) return true;
  if (w.format == WeightFormat::kFp4) return false;
  throw Error(ErrorCode::kUnsupported, "experts: expected weights in FP4 or FP8, found others");
}

template <class Shape>
void launch_products(Exec& exec, const ExpertArguments& arguments) {
  constexpr int kBytes = sizeof(ExpertMemory<Shape>);
  [[maybe_unused]] static const int allowed = allow_shared_memory(experts_kernel<Shape>, kBytes);
  const auto ctas = static_cast<unsigned>(num_sms() * Shape::kCtas);
  launch_early(experts_kernel<Shape>, dim3(ctas), kExpertThreads, kBytes, exec.stream, arguments);
}

/// Rows of an expert that a tile takes at most.
int max_tokens(ExpertTiles tiles) {
  switch (tiles) {
    case ExpertTiles::kNarrow: return NarrowExperts::kMaxTokens;
    case ExpertTiles::kWide128: return Wide128Experts::kMaxTokens;
    case ExpertTiles::kWide256: return Wide256Experts::kMaxTokens;
  }
  return 0;
}

}  // namespace

void experts_with(Exec& exec, const Experts& op, ExpertTiles tiles) {
  const int64_t rows = op.y.dim(0);
  const int64_t hidden = op.y.dim(1);
  const int64_t inner = op.shared.w1.rows;
  const int64_t k = op.ids.dim(1);
  need_multiple("experts: hidden width", hidden, 32);
  need_multiple("experts: inner width", inner, 32);
  ExpertArguments arguments{};
  arguments.gate = matrix_of(op, &ExpertWeights::w1, "w1", inner, hidden);
  arguments.up = matrix_of(op, &ExpertWeights::w3, "w3", inner, hidden);
  arguments.down = matrix_of(op, &ExpertWeights::w2, "w2", hidden, inner);
  arguments.shared_fp8 = is_fp8(op.shared.w1);
  arguments.routed_fp8 = !op.experts.empty() && is_fp8(op.experts.front().w1);
  if (rows == 0) return;

  const Arena::Scope scope(exec.scratch);
  const int64_t num_experts = std::ssize(op.experts);
  arguments.lists = list_experts(exec, op.ids, op.weights, num_experts, max_tokens(tiles));
  const int64_t positions = rows * (k + 1);
  arguments.x_codes = op.x.codes.data;
  arguments.x_scales = op.x.scales.data;
  arguments.u_codes = exec.scratch.take<uint8_t>(positions * inner);
  arguments.u_scales = exec.scratch.take<uint8_t>(positions * inner / kScaleGroup);
  arguments.parts = exec.scratch.take<uint16_t>(positions * hidden);
  arguments.experts = static_cast<int>(num_experts);
  arguments.hidden = static_cast<int>(hidden);
  arguments.inner = static_cast<int>(inner);
  arguments.k = static_cast<int>(k);
  arguments.limit = op.swiglu_limit;
  switch (tiles) {
    case ExpertTiles::kNarrow: launch_products<NarrowExperts>(exec, arguments); break;
    case ExpertTiles::kWide128: launch_products<Wide128Experts>(exec, arguments); break;
    case ExpertTiles::kWide256: launch_products<Wide256Experts>(exec, arguments); break;
  }
  const dim3 grid(blocks_of(hidden, 256 * kVector), static_cast<unsigned>(rows));
  launch_early(
      combine_experts,
      grid,
      256,
      0,
      exec.stream,
      op.y.data,
      static_cast<const uint16_t*>(arguments.parts),
      op.ids.data,
      arguments.experts,
      arguments.k,
      arguments.hidden
  );
}

void experts(Exec& exec, const Experts& op) {
  // Beyond so many rows an expert, the products cost more than reading the weights.
  constexpr int64_t kNarrowRows = 24;
  constexpr int64_t kWide128Rows = 160;
  const int64_t mean = op.y.dim(0) * op.ids.dim(1) / std::max<int64_t>(1, std::ssize(op.experts));
  experts_with(
      exec,
      op,
      mean <= kNarrowRows    ? ExpertTiles::kNarrow
      : mean <= kWide128Rows ? ExpertTiles::kWide128
                             : ExpertTiles::kWide256
  );
}

}  // namespace di::ops::cuda
