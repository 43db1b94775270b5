// The device's draws against sampling::Sampler and score(): the same bits, whatever is asked.
#include "sampling/cuda/draw.h"

#include "sampling/cuda/draw_testing.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::testing::DeviceArray;
using testing::describe;
using testing::expect_same;
using testing::RandomRequests;
using testing::Results;
using testing::Twins;

/// Vocabulary, rows, steps.
struct Size {
  int64_t vocab_size;
  int64_t rows;
  int steps;
};

class DrawOnCuda : public ::testing::TestWithParam<Size> {};

TEST_P(DrawOnCuda, EqualsTheSampler) {
  DI_NEEDS_GPU();
  const auto [vocab_size, rows, steps] = GetParam();
  ops::cuda::testing::Machine machine;
  RandomRequests random(static_cast<unsigned>(vocab_size), vocab_size);
  std::vector<SamplingParams> params;
  std::vector<std::unique_ptr<Twins>> twins;
  std::vector<SlotParams> slots;
  for (int64_t row = 0; row < rows; ++row) {
    params.push_back(row % 4 == 0 ? SamplingParams{.temperature = 0} : random.params());
    twins.push_back(testing::make_twins(random, params.back(), vocab_size, machine.stream()));
    slots.push_back(twins.back()->device.params());
  }
  const DeviceArray<SlotParams> device_slots(slots);
  const Results results{.rows = rows, .most = std::min<int64_t>(vocab_size, 1000)};
  std::vector<double> scratch;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> logits;
    std::vector<DrawRow> draw_rows;
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> one = random.logits();
      logits.insert(logits.end(), one.begin(), one.end());
      draw_rows.push_back(
          {.position = 100 + step,
           .slot = static_cast<int32_t>(row),
           .is_plain = is_plainly_greedy(slots[static_cast<std::size_t>(row)])}
      );
    }
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<DrawRow> device_rows(draw_rows);
    draw(
        machine.stream(),
        {.logits = View<const float, 2>(device_logits.data(), rows, vocab_size),
         .rows = View<const DrawRow, 1>(device_rows.data(), rows),
         .slots = View<const SlotParams, 1>(device_slots.data(), rows),
         .drawn = results.view()}
    );
    const std::vector<Draw> found = results.read();
    for (int64_t row = 0; row < rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::span<const float> one(
          logits.data() + row * vocab_size, static_cast<std::size_t>(vocab_size)
      );
      const Draw expected = twins[r]->host.draw(one, 100 + step, scratch);
      expect_same(
          found[r],
          expected,
          "row " + std::to_string(row) + " step " + std::to_string(step) + ": " +
              describe(params[r])
      );
    }
  }
}

TEST_P(DrawOnCuda, ScoresLikeTheHost) {
  DI_NEEDS_GPU();
  const auto [vocab_size, rows, steps] = GetParam();
  ops::cuda::testing::Machine machine;
  RandomRequests random(static_cast<unsigned>(vocab_size) + 1, vocab_size);
  std::vector<float> logits;
  std::vector<int32_t> tokens;
  std::vector<int32_t> tops;
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<float> one = random.logits();
    logits.insert(logits.end(), one.begin(), one.end());
    tokens.push_back(random.token());
    tops.push_back(
        static_cast<int32_t>(random.one_in(3) ? 0 : random.below(random.one_in(4) ? 1000 : 20))
    );
  }
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_tokens(tokens);
  const DeviceArray<int32_t> device_tops(tops);
  const Results results{.rows = rows, .most = std::min<int64_t>(vocab_size, 1000)};
  score(
      machine.stream(),
      {.logits = View<const float, 2>(device_logits.data(), rows, vocab_size),
       .tokens = View<const int32_t, 1>(device_tokens.data(), rows),
       .tops = View<const int32_t, 1>(device_tops.data(), rows),
       .drawn = results.view()}
  );
  const std::vector<Draw> found = results.read();
  for (int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const std::span<const float> one(
        logits.data() + row * vocab_size, static_cast<std::size_t>(vocab_size)
    );
    expect_same(
        found[r],
        sampling::score(one, tokens[r], tops[r]),
        "row " + std::to_string(row) + " top " + std::to_string(tops[r])
    );
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes,
    DrawOnCuda,
    ::testing::Values(
        Size{1, 50, 2},
        Size{7, 200, 3},
        Size{400, 400, 3},
        Size{4224, 300, 3},
        Size{4231, 100, 2},
        Size{129280, 60, 2}
    )
);

TEST(DrawRowsOnCuda, OfPaddingLeaveNothing) {
  DI_NEEDS_GPU();
  ops::cuda::testing::Machine machine;
  RandomRequests random(5, 400);
  const std::vector<float> logits = random.logits();
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<DrawRow> rows(std::vector<DrawRow>{{.position = 3, .slot = -1}});
  Results results{.rows = 1, .most = 2};
  results.tokens.poison(9);
  draw(
      machine.stream(),
      {.logits = View<const float, 2>(device_logits.data(), 1, 400),
       .rows = View<const DrawRow, 1>(rows.data(), 1),
       .slots = {},
       .drawn = results.view()}
  );
  EXPECT_EQ(results.tokens.read()[0], 0x09090909);
}

}  // namespace
}  // namespace di::sampling::cuda
