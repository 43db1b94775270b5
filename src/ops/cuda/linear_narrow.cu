#include <algorithm>

#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/linear_narrow.cuh"
#include "ops/cuda/linear_narrow.h"

namespace di::ops::cuda {
namespace {

constexpr int kSharedLimit = 227 * 1024;

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

/// What a product alone is given, before its place in a launch: CTAs of many warps, while they keep
/// a third of the device busy.
NarrowProduct plan(const LinearArgs& args) {
  NarrowProduct product{args, 1, 0, 0};
  for (const int strips : {4, 2}) {
    const bool fits = strips * args.slices <= kMaxNarrowWarps;
    if (!fits || 3 * strips_of(args) < strips * num_sms()) continue;
    product.strips = strips;
    break;
  }
  const int ring = args.format == WeightFormat::kFp8 ? StripTraits<WeightFormat::kFp8>::ring
                                                     : StripTraits<WeightFormat::kBf16>::ring;
  product.slots = std::min(ring, args.slice_chunks);
  return product;
}

int shared_bytes(const NarrowProduct& product) {
  const int slot = product.args.format == WeightFormat::kFp8
                       ? StripTraits<WeightFormat::kFp8>::slot_bytes
                       : StripTraits<WeightFormat::kBf16>::slot_bytes;
  const int warps = product.strips * product.args.slices;
  return 128 + warps * (512 + product.slots * slot) +
         128 * product.args.tokens * product.args.chunks;
}

}  // namespace

bool is_narrow(const LinearArgs& args) {
  if (args.format != WeightFormat::kFp8 && args.format != WeightFormat::kBf16) return false;
  if (args.tokens > kMaxNarrowTokens || args.slices > kMaxNarrowWarps) return false;
  if (args.groups > 1 && args.group_rows % kBlockRows != 0) return false;
  // Larger matrices stream faster through the linear kernel's bulk copies.
  constexpr int64_t kLargest = int64_t{12} << 20;
  if (row_tiles(args.rows) * args.chunks * block_bytes(args.format) > kLargest) return false;
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
