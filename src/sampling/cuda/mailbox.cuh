// Numbers from each CTA of a cluster to others. Data and the news of it are one store, so nobody
// fences; a cluster's ordinary barrier waits until all memory of the device agrees.
//
// Barriers are prepared by one thread of each CTA before all CTAs announce that they have begun;
// who sends waits for that. A CTA may end when it has sent, but not before all has arrived that is
// sent to it. Each barrier is used once.
#pragma once

#include <cstdint>

#include "sampling/cuda/row.cuh"

namespace di::sampling::cuda {

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// A barrier in shared memory that is passed when one thread of its CTA has said how many bytes are
/// to arrive, and all of them have.
struct Arrival {
  uint64_t barrier;

  __device__ void prepare() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(shared_address(&barrier))
                 : "memory");
  }

  /// By one thread, once; the bytes may have arrived already.
  __device__ void expect(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(&barrier)),
        "r"(bytes)
        : "memory"
    );
  }

  /// Returns when all is there.
  __device__ void await() {
    for (uint32_t is_done = 0; is_done == 0;) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(is_done)
          : "r"(shared_address(&barrier))
          : "memory"
      );
    }
  }
};

/// Behind all prepare() of a thread.
__device__ inline void make_known() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Stores a number at `place` of CTA `to` and counts it there at `arrival`; both are given as their
/// twins in this CTA.
__device__ inline void send(int to, const uint64_t* place, uint64_t value, const Arrival& arrival) {
  asm volatile(
      "{\n.reg .b32 place, news;\nmapa.shared::cluster.u32 place, %0, %3;\n"
      "mapa.shared::cluster.u32 news, %1, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [place], %2, [news];\n}\n" ::"r"(
          shared_address(place)
      ),
      "r"(shared_address(&arrival.barrier)),
      "l"(value),
      "r"(to)
      : "memory"
  );
}
__device__ inline void send(int to, const int32_t* place, int32_t value, const Arrival& arrival) {
  asm volatile(
      "{\n.reg .b32 place, news;\nmapa.shared::cluster.u32 place, %0, %3;\n"
      "mapa.shared::cluster.u32 news, %1, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [place], %2, [news];\n}\n" ::"r"(
          shared_address(place)
      ),
      "r"(shared_address(&arrival.barrier)),
      "r"(value),
      "r"(to)
      : "memory"
  );
}

/// One letter from each of the first `kSenders` CTAs of the cluster; letters are made of numbers of
/// 64 bits.
template <class Letter, int kSenders = kCtas>
struct Mailbox {
  Letter letters[kSenders];
  Arrival arrival;

  /// One thread of a CTA that is sent to.
  __device__ void prepare() {
    arrival.prepare();
    arrival.expect(static_cast<uint32_t>(sizeof letters));
  }

  /// One thread of CTA `from`.
  __device__ void send_to(int to, int from, const Letter& letter) {
    static_assert(sizeof(Letter) % sizeof(uint64_t) == 0);
    const auto* words = reinterpret_cast<const uint64_t*>(&letter);
    auto* places = reinterpret_cast<uint64_t*>(letters + from);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Letter) / sizeof(uint64_t)); ++i)
      send(to, places + i, words[i], arrival);
  }

  /// Threads of the CTA that is sent to: returns when all letters are there.
  __device__ void await() {
    arrival.await();
  }
};

}  // namespace di::sampling::cuda
