// Tools of the tests of drafts on the device: random sequences, each with a sampler of each kind.
#pragma once

#include <algorithm>

#include "sampling/cuda/draw_testing.h"
#include "sampling/draft_law.h"
#include "sampling/verification.h"

namespace di::sampling::cuda::testing {

using ops::cuda::testing::copy_now;

/// A sequence with a sampler of each kind, and what the device's is to have counted.
struct Sequence {
  Sequence(RandomRequests& random, int64_t vocab_size, bool is_plain, cudaStream_t stream)
      : params(is_plain ? SamplingParams{.temperature = 0} : random.params()),
        twins(testing::make_twins(random, params, vocab_size, stream)),
        rule(
            params.temperature != 0 && random.one_in(2) ? VerificationRule::kBlock
                                                        : VerificationRule::kExactSeed
        ),
        position(random.below(1000)) {
    if (slot().seen == nullptr) return;
    seen.resize(static_cast<std::size_t>(vocab_size));
    copy_now(seen.data(), slot().seen, seen.size() * sizeof(uint32_t));
  }

  const SlotParams& slot() const { return twins->device.params(); }

  void expect_counted(const std::string& what) const {
    int64_t num_outputs = -1;
    copy_now(&num_outputs, slot().num_outputs, sizeof num_outputs);
    EXPECT_EQ(num_outputs, twins->host.num_outputs()) << what;
    std::vector<uint32_t> found(seen.size());
    if (!found.empty()) copy_now(found.data(), slot().seen, found.size() * sizeof(uint32_t));
    EXPECT_TRUE(found == seen) << what;
  }

  SamplingParams params;
  std::unique_ptr<Twins> twins;
  VerificationRule rule;
  int64_t position;
  std::vector<uint32_t> seen;  // [vocab_size]; empty: no penalty
};

/// Sequences of one run and their slots.
struct Sequences {
  Sequences(int64_t count, RandomRequests& random, int64_t vocab_size, cudaStream_t stream) {
    for (int64_t i = 0; i < count; ++i) {
      all.emplace_back(random, vocab_size, /*is_plain=*/i % 4 == 0, stream);
      slots.push_back(all.back().slot());
    }
  }

  std::vector<Sequence> all;
  std::vector<SlotParams> slots;
};

/// Vocabulary, blocks, most drafts, steps.
struct Size {
  int64_t vocab_size;
  int64_t blocks;
  int64_t most_drafts;
  int steps;
};

/// Sizes that tests of blocks and drafts run on.
inline auto all_sizes() {
  return ::testing::Values(
      Size{40, 8, 3, 3},
      Size{7, 60, 3, 6},
      Size{400, 100, 5, 6},
      Size{4224, 60, 5, 6},
      Size{4231, 30, 2, 6},
      Size{129280, 24, 5, 4}
  );
}

}  // namespace di::sampling::cuda::testing
