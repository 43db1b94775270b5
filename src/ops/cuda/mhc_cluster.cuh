// A hyper-connection site for few rows: the sixteen CTAs of a cluster take a sixteenth of the
// channels each, for 8 or 16 rows, and push their sums into each other's memory, so that one launch
// does everything.
#pragma once

#include "ops/cuda/mhc_unit.cuh"

namespace di::ops::cuda {

inline constexpr int kUnitThreads = kMaxUnits * 32;

/// Stores `value` at `place` of CTA `to` of the cluster and counts it there at `barrier`; both are
/// given as their twins in this CTA. Data and news are one store, so nobody fences: the cluster's
/// own barrier would wait until all memory of the device agrees.
__device__ inline void send(int to, const double* place, double value, const uint64_t* barrier) {
  asm volatile(
      "{\n.reg .b32 place, news;\nmapa.shared::cluster.u32 place, %0, %3;\n"
      "mapa.shared::cluster.u32 news, %1, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f64 [place], %2, [news];\n}\n" ::"r"(
          shared_address(place)
      ),
      "r"(shared_address(barrier)),
      "d"(value),
      "r"(to)
      : "memory"
  );
}

/// What the CTAs of a cluster push to each other.
template <int kRows>
struct alignas(16) Pushed {
  double sums[kGroups][kSums];       ///< of the row that this CTA finishes
  double x_squares[kRows][kGroups];  ///< of all rows
  float mixes[kMixes];               ///< of the row that this CTA finishes
  uint64_t arrived;                  ///< passed when all sums are there
};

/// A warp for each unit, and one more that finishes the mixes of the row with the CTA's number.
template <int kHalves>
__global__ void __launch_bounds__(kUnitThreads + 32, 1)
    cluster_kernel(const __grid_constant__ SiteArgs op) {
  using Unit = SiteUnit<kHalves>;
  extern __shared__ __align__(128) std::byte cluster_bytes[];
  auto& pushed = *reinterpret_cast<Pushed<Unit::kRows>*>(cluster_bytes);
  auto* memory = reinterpret_cast<typename Unit::Memory*>(cluster_bytes + sizeof pushed);
  let_next_kernel_start();
  const int units = static_cast<int>(blockDim.x) / 32 - 1;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = cluster_rank();
  const int first_row = static_cast<int>(blockIdx.y) * Unit::kRows;
  const int rows = min(Unit::kRows, op.rows - first_row);
  if (threadIdx.x == 0) {
    barrier_init(&pushed.arrived, 1);
    barrier_init_fence();
    const int own = group < rows ? kSums : 0;
    barrier_expect(&pushed.arrived, 8 * kGroups * (own + (op.a != nullptr ? rows : 0)));
  }
  __syncwarp();
  cluster_arrive_relaxed();
  const bool has_unit = warp < units;
  Unit unit(op, memory[warp], warp * kGroups + group);
  uint4 norm{};
  if (has_unit) {
    unit.bring_fn();
    if (op.a != nullptr) norm = load_vector(op.norm + unit.channel());
    wait_for_previous_kernels();
    unit.request(first_row);
    unit.take(first_row);
    if (op.a != nullptr) unit.collapse(first_row);
    unit.add_up();
  }
  __syncthreads();
  cluster_wait();  // all CTAs of the cluster run by now
  const auto sums_of = [&](int i) -> const auto& {
    return memory[i].sums;
  };
  for (int row = warp; row < rows; row += units + 1) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const double sum = sum_of_units(units, row, sums_of);
    if (lane <= kMixes) send(row, &pushed.sums[group][lane], sum, &pushed.arrived);
    const double x = __shfl_sync(0xffffffffu, sum, 28);
    if (op.a != nullptr && lane < kGroups)
      send(lane, &pushed.x_squares[row][group], x, &pushed.arrived);
  }
  barrier_wait(&pushed.arrived, 0);
  const int64_t own_row = group < rows ? first_row + group : -1;
  if (!has_unit) {
    if (own_row < 0) return;
    finish_sums(op, pushed.sums[0], kSums, kSums, pushed.mixes);
    finish_gates(op.mix, pushed.mixes, own_row);
    finish_comb(op.mix, pushed.mixes, own_row);
    return;
  }
  if (op.a != nullptr) {
    // Lanes of even and of odd number make the factors of the two halves.
    const int own_half = static_cast<int>(threadIdx.x) % kHalves;
    const double squares = sum_of_groups(pushed.x_squares[min(unit.row(own_half), rows - 1)], 1);
    const float own_factor = inverse_rms(squares * op.inverse_hidden, op.norm_eps);
    const float other_factor = __shfl_xor_sync(0xffffffffu, own_factor, 1);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (half * 8 >= rows) break;
      const int row = unit.row(half);
      finish_vector(
          op,
          unit.x(half),
          norm,
          half == own_half ? own_factor : other_factor,
          first_row + row,
          unit.channel(),
          row < rows
      );
    }
  }
}

}  // namespace di::ops::cuda
