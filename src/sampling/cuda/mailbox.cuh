// A number from each CTA of a cluster to the first one. Data and the news of it are one store, so
// nobody fences; a cluster's ordinary barrier waits until all memory of the device agrees.
#pragma once

#include <cstdint>

#include "sampling/cuda/row.cuh"

namespace di::sampling::cuda {

/// Shared memory at the same place of every CTA; used once.
struct Mailbox {
  uint64_t letters[kCtas];
  uint64_t arrived;  ///< a barrier of the first CTA

  /// One thread of the first CTA, before all CTAs announce that they have begun.
  __device__ void prepare() {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;\n"
        "fence.mbarrier_init.release.cluster;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(address(&arrived)),
        "r"(static_cast<uint32_t>(sizeof letters))
        : "memory"
    );
  }

  /// One thread of CTA `cta`, when all have begun; the CTA may end then.
  __device__ void send(int cta, uint64_t letter) {
    asm volatile(
        "{\n.reg .b32 place, news;\nmapa.shared::cluster.u32 place, %0, 0;\n"
        "mapa.shared::cluster.u32 news, %1, 0;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [place], %2, [news];\n}\n" ::"r"(
            address(letters + cta)
        ),
        "r"(address(&arrived)),
        "l"(letter)
        : "memory"
    );
  }

  /// Threads of the first CTA: returns when all letters are there.
  __device__ void await() {
    for (uint32_t is_done = 0; is_done == 0;) {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(is_done)
          : "r"(address(&arrived))
          : "memory"
      );
    }
  }

 private:
  __device__ static uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
};

}  // namespace di::sampling::cuda
