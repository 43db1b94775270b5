// How a linear becomes a launch: which instantiation of the linear kernel runs so many rows of one
// weight format. linear_FORMAT.cu instantiate this, a format each: they take long to compile.
#pragma once

#include <algorithm>
#include <span>

#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/linear_kernel.cuh"
#include "ops/cuda/linear_variants.h"
#include "ops/cuda/tensor_map.h"

namespace di::ops::cuda {
namespace {

/// Tokens whose activations should stay in the second-level cache while row tiles pass.
constexpr int kTokenBlock = 2048;

/// Whether bf16 results can leave as whole tiles.
bool can_store_tiles(const LinearArgs& args) {
  return args.slices == 1 && args.y_f32 == nullptr && args.rows % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
         (args.groups == 1 || args.group_rows % kBlockRows == 0);
}

/// Row tiles that a group touches, in this launch.
int64_t tiles_of_group(const LinearArgs& args) {
  if (args.groups == 1) return row_tiles(args.last_row) - args.first_tile;
  return row_tiles(args.group_rows) + (args.group_rows % kBlockRows != 0 ? 1 : 0);
}

/// Adds the slices' sums that a variant left in scratch.
template <class T>
void launch_add_slices(const LinearArgs& args, cudaStream_t stream) {
  const dim3 grid(
      static_cast<unsigned>(ceil_div(std::min(args.tokens, T::N), 8)),
      static_cast<unsigned>(args.groups * args.group_tiles),
      static_cast<unsigned>(args.token_tiles)
  );
  launch_overlapped("a linear", add_slices<T>, grid, 128, 0, stream, args);
}

/// Runs one variant: the kernel, and the sum of slices where they are units of their own.
template <class T>
void launch(Exec& exec, LinearArgs args) {
  static const int shared = allow_shared_memory(linear_kernel<T>, T::shared_bytes);
  if constexpr (T::add_slices) args.slices = 1;
  args.group_tiles = static_cast<int>(align_up(tiles_of_group(args), T::consumers));
  args.token_tiles = static_cast<int>(ceil_div(args.tokens, T::N));
  args.token_block = std::min(args.token_tiles, std::max(1, kTokenBlock / T::N));
  args.units = args.groups * args.group_tiles / T::consumers * args.token_tiles * args.slices;
  const Arena::Scope scope(exec.scratch);
  if (args.slices > 1) {
    const int64_t pieces = int64_t{args.token_tiles} * args.groups * args.group_tiles * args.slices;
    args.partial = exec.scratch.take<float4>(pieces * (T::N / 8 * 128));
  }
  CUtensorMap x_map{};
  CUtensorMap y_map{};
  if constexpr (!T::q8) x_map = bf16_tile_map(args.x, args.tokens, args.groups, args.x_cols, T::N);
  if (T::y_bytes != 0 && can_store_tiles(args)) {
    args.stores_tiles = true;
    y_map = bf16_tile_map(args.y, args.tokens, 1, args.rows, T::N);
  }
  const dim3 grid(static_cast<unsigned>(std::min(args.units, num_sms())));
  launch_overlapped(
      "a linear", linear_kernel<T>, grid, T::threads, shared, exec.stream, args, x_map, y_map
  );
  if (args.slices > 1) launch_add_slices<T>(args, exec.stream);
}

/// Up to 64 tokens: four row tiles a CTA, one token tile, slices as units of their own.
template <WeightFormat kFormat>
void run_few(Exec& exec, const LinearArgs& args) {
  if (args.tokens <= 8) {
    launch<LinearTraits<kFormat, 8, 4, false, false>>(exec, args);
  } else if (args.tokens <= 16) {
    launch<LinearTraits<kFormat, 16, 4, false, false>>(exec, args);
  } else if (args.tokens <= 32) {
    launch<LinearTraits<kFormat, 32, 4, false, false>>(exec, args);
  } else {
    launch<LinearTraits<kFormat, 64, 4, false, false>>(exec, args);
  }
}

/// A variant for more tokens: two row tiles and so many tokens a CTA.
struct Variant {
  int tokens;
  bool splits;  ///< slices are units of their own; otherwise a unit adds its slices in registers
  void (*run)(Exec& exec, LinearArgs args);
};

/// Nanoseconds that a variant takes, from measurements: a round of the device's CTAs costs as its
/// tokens and the unpacking of weights, which takes as long as 150 tokens; the sums of slices that
/// are units pass through the second-level cache.
double cost(const LinearArgs& args, const Variant& variant) {
  const int64_t sets = args.groups * ceil_div(tiles_of_group(args), 2);
  const int64_t units = sets * ceil_div(args.tokens, variant.tokens);
  const bool splits = variant.splits && args.slices > 1;
  const auto rounds =
      static_cast<double>(ceil_div(splits ? units * args.slices : units, num_sms()));
  const double products =
      1.6 * rounds * (splits ? args.slice_chunks : args.chunks) * (variant.tokens + 150);
  if (!splits) return products;
  return products + 2000 + 0.0023 * args.slices * args.tokens * args.rows;
}

/// The variant that costs least.
const Variant& cheapest(const LinearArgs& args, std::span<const Variant> variants) {
  return *std::min_element(variants.begin(), variants.end(), [&](const auto& a, const auto& b) {
    return cost(args, a) < cost(args, b);
  });
}

/// Runs the variant that costs least. Where its last round would leave most of the device idle, the
/// rows of that round are a second launch, in the variant that suits them.
void run_cheapest(Exec& exec, const LinearArgs& args, std::span<const Variant> variants) {
  constexpr double kLaunch = 4000;
  const Variant& best = cheapest(args, variants);
  if (args.groups == 1) {
    const int64_t token_tiles = ceil_div(args.tokens, best.tokens);
    const int64_t sets = ceil_div(tiles_of_group(args), 2);
    const int64_t rounds = sets * token_tiles / num_sms();
    LinearArgs most = args;
    LinearArgs rest = args;
    rest.first_tile += static_cast<int>(2 * (rounds * num_sms() / token_tiles));
    most.last_row = rest.first_tile * kBlockRows;
    if (rest.first_tile > args.first_tile && most.last_row < args.last_row) {
      const Variant& second = cheapest(rest, variants);
      if (cost(most, best) + cost(rest, second) + kLaunch < cost(args, best)) {
        best.run(exec, most);
        second.run(exec, rest);
        return;
      }
    }
  }
  best.run(exec, args);
}

/// More than 64 tokens. Sums of slices in registers leave room for fewer tokens.
template <WeightFormat kFormat>
void run_many(Exec& exec, const LinearArgs& args) {
  static constexpr Variant kSliced[] = {
      {64, false, launch<LinearTraits<kFormat, 64, 2, false, true>>},
      {128, false, launch<LinearTraits<kFormat, 128, 2, false, true>>},
      {176, false, launch<LinearTraits<kFormat, 176, 2, false, true>>},
      {128, true, launch<LinearTraits<kFormat, 128, 2, false, false>>}};
  static constexpr Variant kWhole[] = {
      {64, true, launch<LinearTraits<kFormat, 64, 2, false, false>>},
      {128, true, launch<LinearTraits<kFormat, 128, 2, false, false>>},
      {256, true, launch<LinearTraits<kFormat, 256, 2, false, false>>}};
  if (args.slices > 1) {
    run_cheapest(exec, args, kSliced);
  } else {
    run_cheapest(exec, args, kWhole);
  }
}

}  // namespace

template <WeightFormat kFormat>
void run_rows(Exec& exec, const LinearArgs& args) {
  if (args.tokens <= kFewTokens) {
    run_few<kFormat>(exec, args);
  } else {
    run_many<kFormat>(exec, args);
  }
}

template <WeightFormat kFormat>
void run_codes(Exec& exec, const LinearArgs& args) {
  if (args.tokens <= 8) {
    launch<LinearTraits<kFormat, 8, 4, true, false>>(exec, args);
  } else {
    launch<LinearTraits<kFormat, 16, 4, true, false>>(exec, args);
  }
}

}  // namespace di::ops::cuda
