#include <algorithm>

#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/linear_narrow.cuh"
#include "ops/cuda/linear_narrow.h"

namespace di::ops::cuda {
namespace {

constexpr int kSharedLimit = 227 * 1024;
/// Matrices beyond this are limited by the memory's rate and not by latencies.
constexpr int64_t kSmallBytes = int64_t{12} << 20;

__global__ void __launch_bounds__(32 * kMaxNarrowWarps, 1)
    narrow_kernel(const __grid_constant__ NarrowSet set) {
  extern __shared__ float4 dynamic_shared[];
  let_next_kernel_start();
  int i = 0;
  while (i + 1 < set.count && static_cast<int>(blockIdx.x) >= set.products[i + 1].first_cta)
    ++i;
  const NarrowProduct& product = set.products[i];
  const int cta = static_cast<int>(blockIdx.x) - product.first_cta;
  if (product.args.format == WeightFormat::kFp8) {
    run_narrow_cta<WeightFormat::kFp8>(product, cta, dynamic_shared);
  } else {
    run_narrow_cta<WeightFormat::kBf16>(product, cta, dynamic_shared);
  }
}

int64_t strips_of(const LinearArgs& args) {
  return ceil_div(args.rows, kStripRows);
}

int64_t bytes_of(const LinearArgs& args) {
  return row_tiles(args.rows) * args.chunks * block_bytes(args.format);
}

/// Strips of a CTA of a large matrix: as few as let all CTAs run at once, one a multiprocessor.
int strips_of_large(const LinearArgs& args) {
  const auto wanted = static_cast<int>(ceil_div(strips_of(args), num_sms()));
  int strips = std::clamp(wanted, 1, kMaxNarrowWarps / args.slices);
  // No CTA has strips of two groups.
  while (args.groups > 1 && args.group_rows / kStripRows % strips != 0)
    --strips;
  return strips;
}

/// Of a small one: CTAs of many warps, which share activations, while they keep a third of the
/// device busy.
int strips_of_small(const LinearArgs& args) {
  for (const int strips : {16, 8, 4, 2}) {
    const bool fits = strips * args.slices <= kMaxNarrowWarps && (strips <= 4 || args.groups == 1);
    if (fits && 3 * strips_of(args) >= strips * num_sms()) return strips;
  }
  return 1;
}

/// What a product is given, before its place in a launch.
NarrowProduct plan(const LinearArgs& args) {
  return {args, bytes_of(args) > kSmallBytes ? strips_of_large(args) : strips_of_small(args), 0};
}

int shared_bytes(const NarrowProduct& product) {
  const LinearArgs& args = product.args;
  return 512 * product.strips * args.slices + 128 + 128 * args.tokens * args.chunks;
}

}  // namespace

bool narrow_gives_q8(const LinearArgs& args) {
  return plan(args).strips % 2 == 0;
}

bool is_narrow(const LinearArgs& args) {
  if (args.format != WeightFormat::kFp8 && args.format != WeightFormat::kBf16) return false;
  if (args.tokens > kMaxNarrowTokens || args.slices > kMaxNarrowWarps) return false;
  if (args.groups > 1 && args.group_rows % kBlockRows != 0) return false;
  // Beyond these, the linear kernel's bulk copies stream faster.
  constexpr int64_t kLargest = int64_t{192} << 20;
  constexpr int kTokensOfLarge = 4;
  if (bytes_of(args) > (args.tokens <= kTokensOfLarge ? kLargest : kSmallBytes)) return false;
  return shared_bytes(plan(args)) <= kSharedLimit;
}

void run_narrow(Exec& exec, std::span<const LinearArgs> products) {
  static const int limit = allow_shared_memory(narrow_kernel, kSharedLimit);
  for (std::size_t begin = 0; begin < products.size(); begin += kMaxNarrowProducts) {
    NarrowSet set{};
    int ctas = 0;
    int warps = 0;
    int shared = 0;
    for (const LinearArgs& args : products.subspan(
             begin, std::min<std::size_t>(kMaxNarrowProducts, products.size() - begin)
         )) {
      NarrowProduct product = plan(args);
      product.first_cta = ctas;
      ctas += static_cast<int>(ceil_div(strips_of(args), product.strips));
      warps = std::max(warps, product.strips * args.slices);
      shared = std::max(shared, shared_bytes(product));
      set.products[set.count++] = product;
    }
    launch_overlapped(
        "a linear",
        narrow_kernel,
        dim3(static_cast<unsigned>(ctas)),
        32 * warps,
        std::min(shared, limit),
        exec.stream,
        set
    );
  }
}

}  // namespace di::ops::cuda
