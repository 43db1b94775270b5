// How a linear becomes a launch: which instantiation of the linear kernel runs so many rows of one
// weight format. linear_FORMAT.cu instantiate this, a format each: they take long to compile.
#pragma once

#include <algorithm>
#include <limits>
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
  return args.pieces == 1 && args.y_f32 == nullptr && args.rows % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
         (args.groups == 1 || args.group_rows % kBlockRows == 0);
}

/// Row tiles that a group touches, in this launch.
int64_t tiles_of_group(const LinearArgs& args) {
  if (args.groups == 1) return row_tiles(args.last_row) - args.first_tile;
  return row_tiles(args.group_rows) + (args.group_rows % kBlockRows != 0 ? 1 : 0);
}

/// Adds the pieces' sums that a variant left in scratch.
template <class T>
void launch_add_pieces(const LinearArgs& args, cudaStream_t stream) {
  const dim3 grid(
      static_cast<unsigned>(ceil_div(std::min(args.tokens, T::N), 8)),
      static_cast<unsigned>(args.groups * args.group_tiles),
      static_cast<unsigned>(args.token_tiles)
  );
  launch_overlapped("a linear", add_pieces<T>, grid, 128, 0, stream, args);
}

/// Runs one variant, with units of so many slices: the kernel, and the sum of pieces where there
/// are several.
template <class T>
void launch(Exec& exec, LinearArgs args, int piece_slices) {
  static const int shared = allow_shared_memory(linear_kernel<T>, T::shared_bytes);
  args.piece_slices = piece_slices;
  args.pieces = static_cast<int>(ceil_div(args.slices, piece_slices));
  args.group_tiles = static_cast<int>(align_up(tiles_of_group(args), T::consumers));
  args.token_tiles = static_cast<int>(ceil_div(args.tokens, T::N));
  args.token_block = std::min(args.token_tiles, std::max(1, kTokenBlock / T::N));
  args.units = args.groups * args.group_tiles / T::consumers * args.token_tiles * args.pieces;
  const Arena::Scope scope(exec.scratch);
  if (args.pieces > 1) {
    const int64_t tiles = int64_t{args.token_tiles} * args.groups * args.group_tiles;
    args.partial = exec.scratch.take<float4>(tiles * args.pieces * (T::N / 8 * 128));
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
  if (args.pieces > 1) launch_add_pieces<T>(args, exec.stream);
}

/// Up to 64 tokens: four row tiles a CTA, one token tile, slices as units of their own.
template <WeightFormat kFormat>
void run_few(Exec& exec, const LinearArgs& args) {
  if (args.tokens <= 8) {
    launch<LinearTraits<kFormat, 8, 4>>(exec, args, 1);
  } else if (args.tokens <= 16) {
    launch<LinearTraits<kFormat, 16, 4>>(exec, args, 1);
  } else if (args.tokens <= 32) {
    launch<LinearTraits<kFormat, 32, 4>>(exec, args, 1);
  } else {
    launch<LinearTraits<kFormat, 64, 4>>(exec, args, 1);
  }
}

/// What a unit takes of a tile's columns.
enum class Piece { kSlice, kPart, kAll };

/// A variant for more tokens: two row tiles and so many tokens a CTA.
struct Variant {
  int tokens;
  SliceSums sums;
  Piece piece;
  void (*run)(Exec& exec, LinearArgs args, int piece_slices);
};

int piece_slices(const LinearArgs& args, Piece piece) {
  return piece == Piece::kSlice ? 1 : piece == Piece::kPart ? args.part_slices : args.slices;
}

/// Whether the variant's units can add what is in one of their pieces.
bool suits(const LinearArgs& args, const Variant& variant) {
  const int slices = piece_slices(args, variant.piece);
  const bool finer = variant.piece == Piece::kAll || slices < args.slices;
  switch (variant.sums) {
    case SliceSums::kOne: return finer && slices == 1;
    case SliceSums::kPart: return finer && slices <= args.part_slices;
    default: return slices > args.part_slices;
  }
}

/// Nanoseconds that a variant takes, from measurements: a round of the device's CTAs costs as its
/// tokens, what products with weights from registers take beyond those, which is as long as 63
/// tokens, and a unit's end; the sums of pieces pass through the second-level cache.
double cost(const LinearArgs& args, const Variant& variant) {
  if (!suits(args, variant)) return std::numeric_limits<double>::infinity();
  const int64_t sets = args.groups * ceil_div(tiles_of_group(args), 2);
  const int64_t length = piece_slices(args, variant.piece);
  const int64_t pieces = ceil_div(args.slices, length);
  const int64_t chunks = std::min<int64_t>(length * args.slice_chunks, args.chunks);
  const int64_t units = sets * ceil_div(args.tokens, variant.tokens) * pieces;
  const auto rounds = static_cast<double>(ceil_div(units, num_sms()));
  const double products =
      rounds * (1.94 * static_cast<double>(chunks) * (variant.tokens + 63) + 2000);
  if (pieces == 1) return products;
  return products + 2000 + 0.0023 * static_cast<double>(pieces * args.tokens) * args.rows;
}

/// The variant that costs least.
const Variant& cheapest(const LinearArgs& args, std::span<const Variant> variants) {
  return *std::min_element(variants.begin(), variants.end(), [&](const auto& a, const auto& b) {
    return cost(args, a) < cost(args, b);
  });
}

/// Rows of a product, in the variant that suits them; and what they cost.
struct Share {
  LinearArgs args;
  const Variant* variant;
  double cost;

  Share(const LinearArgs& rows, const Variant& chosen)
      : args(rows), variant(&chosen), cost(cuda::cost(rows, chosen)) {}
  void run(Exec& exec) const { variant->run(exec, args, piece_slices(args, variant->piece)); }
};

/// Runs the variant that costs least. Where its last round would leave most of the device idle, the
/// rows of that round are a second launch, in the variant that suits them.
void run_cheapest(Exec& exec, const LinearArgs& args, std::span<const Variant> variants) {
  constexpr double kLaunch = 4000;
  const Share all(args, cheapest(args, variants));
  if (args.groups == 1 && all.variant->piece == Piece::kAll) {
    const int64_t token_tiles = ceil_div(args.tokens, all.variant->tokens);
    const int64_t sets = ceil_div(tiles_of_group(args), 2);
    const int64_t rounds = sets * token_tiles / num_sms();
    LinearArgs upper = args;
    LinearArgs lower = args;
    lower.first_tile += static_cast<int>(2 * (rounds * num_sms() / token_tiles));
    upper.last_row = lower.first_tile * kBlockRows;
    if (lower.first_tile > args.first_tile && upper.last_row < args.last_row) {
      const Share most(upper, *all.variant);
      const Share rest(lower, cheapest(lower, variants));
      if (most.cost + rest.cost + kLaunch < all.cost) {
        most.run(exec);
        rest.run(exec);
        return;
      }
    }
  }
  all.run(exec);
}

/// One for the table of them.
template <WeightFormat kFormat, int N, SliceSums kSums>
constexpr Variant variant(Piece piece) {
  return {N, kSums, piece, launch<LinearTraits<kFormat, N, 2, false, kSums>>};
}

/// More than 64 tokens. Sums of slices in registers leave room for fewer tokens, those of parts in
/// shared memory for fewer still.
template <WeightFormat kFormat>
void run_many(Exec& exec, const LinearArgs& args) {
  constexpr auto kOne = SliceSums::kOne;
  constexpr auto kPart = SliceSums::kPart;
  constexpr auto kParts = SliceSums::kParts;
  static constexpr Variant kVariants[] = {
      variant<kFormat, 128, kOne>(Piece::kAll),
      variant<kFormat, 176, kOne>(Piece::kAll),
      variant<kFormat, 256, kOne>(Piece::kAll),
      variant<kFormat, 64, kPart>(Piece::kAll),
      variant<kFormat, 96, kPart>(Piece::kAll),
      variant<kFormat, 128, kPart>(Piece::kAll),
      variant<kFormat, 160, kPart>(Piece::kAll),
      variant<kFormat, 176, kPart>(Piece::kAll),
      variant<kFormat, 96, kParts>(Piece::kAll),
      variant<kFormat, 128, kParts>(Piece::kAll),
      variant<kFormat, 160, kParts>(Piece::kAll),
      variant<kFormat, 64, kPart>(Piece::kPart),
      variant<kFormat, 96, kPart>(Piece::kPart),
      variant<kFormat, 128, kPart>(Piece::kPart),
      variant<kFormat, 176, kPart>(Piece::kPart),
      variant<kFormat, 128, kOne>(Piece::kSlice),
      variant<kFormat, 176, kOne>(Piece::kSlice)};
  run_cheapest(exec, args, kVariants);
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
    launch<LinearTraits<kFormat, 8, 4, true>>(exec, args, 1);
  } else {
    launch<LinearTraits<kFormat, 16, 4, true>>(exec, args, 1);
  }
}

}  // namespace di::ops::cuda
