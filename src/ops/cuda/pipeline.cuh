// What feeds the tensor cores: barriers in shared memory that count arrivals and bytes, bulk copies
// into shared memory that report to them, and the few instructions that order the two worlds
// (ordinary accesses and the copy engine). Thin inline PTX for sm_90 and later.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace di::ops::cuda {

/// The 32-bit address that PTX uses for a pointer into this CTA's shared memory.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Prepares a barrier whose phase ends after `arrivals` arrivals and all announced bytes. One
/// thread; then barrier_init_fence() and a barrier of the CTA before anybody uses it.
__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Arrives and announces `bytes` that copies will report.
__device__ inline void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier
               )),
               "r"(bytes)
               : "memory");
}

/// Returns once the phase of the given parity has ended. A wait that never ends is a defect of the
/// pipeline: it traps after some seconds, so that no device hangs.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  const uint32_t address = shared_address(barrier);
  for (uint32_t spins = 0;; ++spins) {
    uint32_t done = 0;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory"
    );
    if (done != 0) return;
    if (spins == 1u << 24) __trap();
  }
}

/// Where a ring of `Stages` slots stands: the slot, and the parity of its current use.
template <int Stages>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++slot == Stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// Copies `bytes` (a multiple of 16, both sides aligned to 16) from device memory to shared memory
/// and reports them to `barrier`. What streams through once should not push other data from the
/// second-level cache: it is marked as first to leave.
__device__ inline void bulk_load_streaming(
    void* to, const void* from, int bytes, uint64_t* barrier
) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], policy;\n}\n" ::"r"(shared_address(to)),
      "l"(from),
      "r"(bytes),
      "r"(shared_address(barrier))
      : "memory"
  );
}

/// The same without a preference.
__device__ inline void bulk_load(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from),
      "r"(bytes),
      "r"(shared_address(barrier))
      : "memory"
  );
}

/// Copies the box of `map` at (x, y, z), innermost first, and reports its bytes to `barrier`;
/// elements outside of the tensor arrive as zeros, and count.
__device__ inline void tensor_load(
    void* to, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier
) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(shared_address(barrier))
      : "memory"
  );
}

/// The same box into the same place of every CTA of the cluster in `ctas` (a bit each), reporting
/// to the barrier at the same place of each.
__device__ inline void tensor_load_multicast(
    void* to, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier, uint16_t ctas
) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(shared_address(barrier)),
      "h"(ctas)
      : "memory"
  );
}

/// Arrives at the barrier at the same place of another CTA of the cluster.
__device__ inline void barrier_arrive_remote(uint64_t* barrier, int cta) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}\n" ::"r"(
          shared_address(barrier)
      ),
      "r"(cta)
      : "memory"
  );
}

/// All threads of all CTAs of the cluster meet.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::
                   : "memory");
}
__device__ inline int cluster_rank() {
  int rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Makes this thread's writes to shared memory visible to tensor cores and copies.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// A barrier of `threads` threads (a multiple of 32) of the CTA; ids 1 to 15, 0 is __syncthreads.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Moves the warpgroup's register limit to `Count`, a multiple of 8.
template <int Count>
__device__ inline void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ inline void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

/// Waits for the kernels before this one in the stream, when it was launched to overlap with them;
/// before it, only data that no kernel writes may be read, and nothing may be written.
__device__ inline void wait_for_previous_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// Lets the next kernel of the stream start, if it was launched to overlap with this one.
__device__ inline void let_next_kernel_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace di::ops::cuda
