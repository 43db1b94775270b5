// What feeds the tensor cores: barriers in shared memory that count arrivals and bytes, bulk copies
// into shared memory that report to them, and the few instructions that order the two worlds
// (ordinary accesses and the copy engine). Thin inline PTX for sm_90 and later.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "ops/cuda/launch_overlapped.cuh"

namespace di::ops::cuda {

/// The 32-bit address that PTX uses for a pointer into this CTA's shared memory.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers are named by their 32-bit address or, for convenience, by pointer.

/// Prepares a barrier whose phase ends after `arrivals` arrivals and all announced bytes. One
/// thread; then barrier_init_fence() and a barrier of the CTA before anybody uses it.
__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  barrier_init(shared_address(barrier), arrivals);
}
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  barrier_arrive(shared_address(barrier));
}

/// Arrives when this thread's copies so far (cp.async) are done; one of the barrier's arrivals.
__device__ inline void barrier_arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// Arrives and announces `bytes` that copies will report.
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_expect(uint64_t* barrier, int bytes) {
  barrier_expect(shared_address(barrier), bytes);
}

/// Returns once the phase of the given parity has ended. A wait that never ends is a defect of the
/// pipeline: it traps after some seconds, so that no device hangs.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  for (uint32_t spins = 0;; ++spins) {
    uint32_t done = 0;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory"
    );
    if (done != 0) return;
    if (spins == 1u << 24) __trap();
  }
}
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  barrier_wait(shared_address(barrier), parity);
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
    uint32_t to, const void* from, int bytes, uint32_t barrier
) {
  asm volatile(
      "{\n.reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], policy;\n}\n" ::"r"(to),
      "l"(from),
      "r"(bytes),
      "r"(barrier)
      : "memory"
  );
}
__device__ inline void bulk_load_streaming(
    void* to, const void* from, int bytes, uint64_t* barrier
) {
  bulk_load_streaming(shared_address(to), from, bytes, shared_address(barrier));
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
    uint32_t to, const CUtensorMap* map, int x, int y, int z, uint32_t barrier
) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(barrier)
      : "memory"
  );
}

/// The halves of a barrier of all threads of the cluster's CTAs.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// cluster_arrive() that orders no memory but what a fence before it does.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline int cluster_rank() {
  int rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Sixteen, or four, bytes of shared memory.
__device__ inline uint4 load_shared_16(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}
__device__ inline uint32_t load_shared_4(uint32_t address) {
  uint32_t value = 0;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}
__device__ inline void store_shared_16(uint32_t address, const uint4& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(value.x),
               "r"(value.y),
               "r"(value.z),
               "r"(value.w)
               : "memory");
}

/// Copies a box of shared memory to its place in `map`, innermost coordinate first, as part of this
/// thread's current batch of stores; what lies outside of the tensor is left out.
__device__ inline void tensor_store(uint32_t from, const CUtensorMap* map, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(from)
      : "memory"
  );
}
__device__ inline void commit_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Returns when this thread's stores have read their shared memory, or are done.
__device__ inline void wait_for_stores_to_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ inline void store_shared_4(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// Makes this thread's writes to shared memory visible to tensor cores and copies.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// A barrier of `threads` threads (a multiple of 32) of the CTA; ids 1 to 15, 0 is __syncthreads.
__device__ inline void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Arrives at it without waiting for the others.
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
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

}  // namespace di::ops::cuda
