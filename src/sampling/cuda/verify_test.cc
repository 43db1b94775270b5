// Blocks of drafts on the device against verify_drafts(), by either rule.
#include "sampling/cuda/verify.h"

#include <algorithm>

#include "sampling/cuda/verify_testing.h"
#include "sampling/draft_verifier.h"

namespace di::sampling::cuda {
namespace {

using ops::cuda::testing::copy_now;
using ops::cuda::testing::DeviceArray;
using testing::describe;
using testing::expect_same;
using testing::RandomRequests;
using testing::Results;
using testing::Sequence;
using testing::Sequences;
using testing::Size;

constexpr int32_t kPoison = 0x09090909;

/// What verify() is given, at addresses that stay the same.
struct Buffers {
  Size size;
  int64_t rows = size.blocks * (size.most_drafts + 2);
  DeviceArray<float> logits{rows * size.vocab_size};
  DeviceArray<VerifyBlock> blocks{size.blocks};
  DeviceArray<int32_t> drafts{size.blocks * (size.most_drafts + 1)};
  DeviceArray<int32_t> places{size.blocks * (size.most_drafts + 1)};
  DeviceArray<DraftRecord> records{size.blocks * (size.most_drafts + 1)};
  DeviceArray<int32_t> num_drawn{size.blocks};
  Results results{.rows = rows, .most = std::min<int64_t>(size.vocab_size, 1000)};

  void enqueue(cudaStream_t stream, const DeviceArray<SlotParams>& slots) const {
    verify(
        stream,
        {.logits = View<const float, 2>(logits.data(), rows, size.vocab_size),
         .blocks = View<const VerifyBlock, 1>(blocks.data(), size.blocks),
         .most_drafts = size.most_drafts,
         .slots = View<const SlotParams, 1>(slots.data(), slots.size()),
         .drawn = results.view(),
         .num_drawn = View<int32_t, 1>(num_drawn.data(), size.blocks)}
    );
  }
};

/// One block as the test knows it.
struct Block {
  std::vector<float> logits;  // [rows]
  std::vector<int32_t> drafts;
  std::vector<DraftLaw> laws;        // of the drafts that block verification judges,
  std::vector<DraftRecord> records;  // and as the device knows them
  std::vector<Draw> draws;           // those that count
  VerifyBlock given;
};

/// Drafts behind those of the block, by a row of the drafter's, as choose_draft() does.
void add_draft(Block& block, Sampler& ahead, const std::vector<float>& row, double share) {
  std::vector<double> scratch;
  SampledRow sampled = ahead.row(row, scratch);
  std::vector<TokenMass> best = {{0, 1}};
  if (sampled.law.drawable()) best = sampled.law.best(kDraftCandidates);
  while (best.size() > 1 && best.back().mass < kLeastDraftMass)
    best.pop_back();
  DraftRecord record{};
  for (const TokenMass& candidate : best)
    record.mass += candidate.mass;
  DraftLaw& law = block.laws.emplace_back();
  int32_t token = best.front().token;
  double sum = 0;
  for (const TokenMass& candidate : best) {
    record.tokens[record.count] = candidate.token;
    record.masses[record.count++] = candidate.mass;
    law.push_back(
        {candidate.token, static_cast<double>(candidate.mass) / static_cast<double>(record.mass)}
    );
    if (sum <= share) token = candidate.token;
    sum += law.back().probability;
  }
  block.records.push_back(record);
  block.drafts.push_back(token);
  ahead.count(token);
}

class VerifyOnCuda : public ::testing::TestWithParam<Size> {
 protected:
  /// Random rows, and drafts of which most are what the target draws; or drafts that are drawn from
  /// something like them.
  static Block make_block(RandomRequests& random, const Sequence& sequence, const Size& size) {
    Block block;
    const auto drafts = static_cast<std::size_t>(random.below(size.most_drafts + 1));
    Sampler ahead = sequence.twins->host;
    std::vector<double> scratch;
    for (std::size_t i = 0; i <= drafts; ++i) {
      const std::vector<float> row = random.logits();
      block.logits.insert(block.logits.end(), row.begin(), row.end());
      if (i == drafts) break;
      if (sequence.rule == VerificationRule::kBlock) {
        std::vector<float> drafter = random.one_in(4) ? random.logits() : row;
        if (random.one_in(2)) drafter[static_cast<std::size_t>(random.token())] += 3;
        add_draft(block, ahead, drafter, random.unit());
        continue;
      }
      const auto position = sequence.position + static_cast<int64_t>(i);
      const Draw draw = ahead.draw(row, position, scratch);
      block.drafts.push_back(draw.finite && !random.one_in(6) ? draw.token : random.token());
    }
    return block;
  }

  /// The processor's draws, which its sampler and `seen` count.
  static void verify_on_host(Block& block, Sequence& sequence, int64_t vocab_size) {
    RowsScratch scratch;
    const DraftedRows rows{
        .logits =
            View<const float, 2>(block.logits.data(), std::ssize(block.drafts) + 1, vocab_size),
        .drafts = block.drafts,
        .laws = block.laws,
        .anchor_position = sequence.position};
    block.draws = verify_drafts(sequence.twins->host, sequence.rule, rows, scratch).draws;
    for (const Draw& draw : block.draws) {
      if (!sequence.seen.empty() && draw.finite) {
        ++sequence.seen[static_cast<std::size_t>(draw.token)];
      }
    }
  }

  /// Lays the blocks out with rows of nobody between them, and brings all to the device.
  static void upload(std::vector<Block>& blocks, RandomRequests& random, Buffers& to) {
    const auto stride = to.size.most_drafts + 1;
    std::vector<VerifyBlock> given;
    int64_t row = 0;
    to.places.poison(9);
    to.num_drawn.poison(9);
    to.results.tokens.poison(9);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      Block& block = blocks[b];
      const auto at = static_cast<int64_t>(b) * stride;
      row += random.below(2);
      block.given.first_row = static_cast<int32_t>(row);
      block.given.num_drafts = static_cast<int32_t>(block.drafts.size());
      block.given.place = to.places.data() + at;
      block.given.drafts = (random.one_in(2) ? to.places.data() : to.drafts.data()) + at;
      copy_now(
          const_cast<int32_t*>(block.given.drafts),
          block.drafts.data(),
          block.drafts.size() * sizeof(int32_t)
      );
      if (!block.records.empty()) {
        block.given.records = to.records.data() + at;
        copy_now(
            block.given.records, block.records.data(), block.records.size() * sizeof(DraftRecord)
        );
      }
      copy_now(
          to.logits.data() + row * to.size.vocab_size,
          block.logits.data(),
          block.logits.size() * sizeof(float)
      );
      row += std::ssize(block.drafts) + 1;
      given.push_back(block.given);
    }
    copy_now(to.blocks.data(), given.data(), given.size() * sizeof(VerifyBlock));
  }

  /// What the device wrote to the block's place.
  static void expect_placed(
      const Block& block, const int32_t* places, const Buffers& buffers, const std::string& what
  ) {
    const bool lie_there = block.given.drafts == block.given.place;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(buffers.size.most_drafts); ++i) {
      int32_t expected = lie_there && i < block.drafts.size() ? block.drafts[i] : kPoison;
      if (i < block.draws.size() && block.draws[i].finite) expected = block.draws[i].token;
      EXPECT_EQ(places[i], expected) << what << ", place " << i;
    }
  }
};

TEST_P(VerifyOnCuda, EqualsTheSamplerTokenByToken) {
  DI_NEEDS_GPU();
  const Size size = GetParam();
  ops::cuda::testing::Machine machine;
  RandomRequests random(static_cast<unsigned>(size.vocab_size + size.blocks), size.vocab_size);
  Sequences sequences(size.blocks, random, size.vocab_size, machine.stream());
  const DeviceArray<SlotParams> slots(sequences.slots);
  Buffers buffers{.size = size};
  cudaGraphExec_t recorded = nullptr;
  int64_t most_drawn = 0;
  for (int step = 0; step < size.steps; ++step) {
    std::vector<Block> blocks;
    for (int64_t b = 0; b < size.blocks; ++b) {
      // Blocks come in the order of no slots; one in six is padding.
      const int64_t slot = (b * 7 + step) % size.blocks;
      Sequence& sequence = sequences.all[static_cast<std::size_t>(slot)];
      blocks.push_back(make_block(random, sequence, size));
      Block& block = blocks.back();
      block.given.slot = random.one_in(6) ? -1 : static_cast<int32_t>(slot);
      block.given.is_plain = is_plainly_greedy(sequence.slot());
      block.given.position = sequence.position;
      if (block.given.slot < 0) continue;
      verify_on_host(block, sequence, size.vocab_size);
      sequence.position += std::ssize(block.draws);
      most_drawn = std::max<int64_t>(most_drawn, std::ssize(block.draws));
    }
    upload(blocks, random, buffers);
    if (step == 1) {
      cudaGraph_t graph = nullptr;
      cudaStreamBeginCapture(machine.stream(), cudaStreamCaptureModeThreadLocal);
      buffers.enqueue(machine.stream(), slots);
      cudaStreamEndCapture(machine.stream(), &graph);
      ASSERT_EQ(cudaGraphInstantiate(&recorded, graph, 0), cudaSuccess);
      cudaGraphDestroy(graph);
    }
    if (recorded != nullptr) {
      ASSERT_EQ(cudaGraphLaunch(recorded, machine.stream()), cudaSuccess);
    } else {
      buffers.enqueue(machine.stream(), slots);
    }
    const std::vector<Draw> found = buffers.results.read();
    const std::vector<int32_t> num_drawn = buffers.num_drawn.read();
    const std::vector<int32_t> places = buffers.places.read();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Block& block = blocks[b];
      const auto first = static_cast<std::size_t>(block.given.first_row);
      const auto* const block_places = places.data() + b * (size.most_drafts + 1);
      std::string what = "step " + std::to_string(step) + " block " + std::to_string(b);
      if (block.given.slot < 0) {
        EXPECT_EQ(num_drawn[b], kPoison) << what;
        EXPECT_EQ(found[first].token, kPoison) << what;
        expect_placed(block, block_places, buffers, what);
        continue;
      }
      const Sequence& sequence = sequences.all[static_cast<std::size_t>(block.given.slot)];
      what += ": " + describe(sequence.params);
      ASSERT_EQ(num_drawn[b], std::ssize(block.draws)) << what;
      for (std::size_t i = 0; i < block.draws.size(); ++i)
        expect_same(found[first + i], block.draws[i], what + ", row " + std::to_string(i));
      expect_placed(block, block_places, buffers, what);
      sequence.expect_counted(what);
    }
  }
  if (recorded != nullptr) cudaGraphExecDestroy(recorded);
  EXPECT_EQ(most_drawn, size.most_drafts + 1) << "no block was accepted whole";
}

INSTANTIATE_TEST_SUITE_P(Sizes, VerifyOnCuda, testing::all_sizes());

TEST(VerifyRowsOnCuda, RefuseMoreDraftsThanAWarpHas) {
  const float logit = 0;
  EXPECT_ANY_THROW(verify(
      nullptr,
      {.logits = View<const float, 2>(&logit, 1, 1),
       .blocks = {},
       .most_drafts = kMostDrafts + 1,
       .slots = {},
       .drawn = {},
       .num_drawn = {}}
  ));
}

}  // namespace
}  // namespace di::sampling::cuda
