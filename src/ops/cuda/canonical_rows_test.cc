// Norm, window keys, Engram's gate, attention and selection in canonical arithmetic: the
// reference's bits.
#include <cmath>

#include <gtest/gtest.h>

#include "ops/cuda/attention_testing.h"
#include "ops/cuda/canonical_testing.h"
#include "ops/cuda/index_testing.h"

namespace di::ops::cuda {
namespace {

using cpu::testing::random_bf16;
using testing::AttentionShape;
using testing::DeviceArray;
using testing::different_bits;
using testing::IndexShape;
using testing::Machine;
using testing::SharedArray;

constexpr int64_t kRows = 37;

TEST(CanonicalOnCuda, NormalisesLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  std::mt19937 random(6);
  for (const int64_t width : {32, 96, 256, 1280, 5120}) {
    const SharedArray<bf16> x(random_bf16(random, kRows * width));
    const SharedArray<bf16> weight(random_bf16(random, width));
    const SharedArray<bf16> y[2] = {SharedArray<bf16>(x.size()), SharedArray<bf16>(x.size())};
    const SharedArray<uint8_t> codes[2] = {
        SharedArray<uint8_t>(x.size()), SharedArray<uint8_t>(x.size())};
    const SharedArray<uint8_t> scales[2] = {
        SharedArray<uint8_t>(x.size() / 32), SharedArray<uint8_t>(x.size() / 32)};
    for (const int i : {0, 1}) {
      const RmsNorm op{
          .y = y[i].rows(kRows),
          .x = x.rows(kRows),
          .weight = weight.view(width),
          .eps = 1e-6f,
          .codes = codes[i].rows(kRows),
          .scales = scales[i].rows(kRows)};
      if (i == 0) {
        ref_ops().rms_norm(machine.host(), op);
      } else {
        canonical_cuda_ops().rms_norm(machine.device(), op);
      }
    }
    machine.wait();
    EXPECT_EQ(different_bits(y[1], y[0]), 0) << width;
    EXPECT_EQ(different_bits(codes[1], codes[0]), 0) << width;
    EXPECT_EQ(different_bits(scales[1], scales[0]), 0) << width;
  }
}

TEST(CanonicalOnCuda, MakesWindowKeysLikeTheReference) {
  DI_NEEDS_GPU();
  constexpr int64_t kDim = 128, kPairs = 16, kQuery = 64;
  Machine machine;
  std::mt19937 random(7);
  const std::vector<bf16> kv = random_bf16(random, kRows * kDim);
  const std::vector<bf16> q = random_bf16(random, kRows * kQuery);
  const SharedArray<bf16> norm(random_bf16(random, kDim)), q_norm(random_bf16(random, kQuery));
  std::vector<int64_t> at;
  for (int64_t i = 0; i < kRows; ++i)
    at.push_back(i * i * 700);
  std::vector<float> steps;
  for (int64_t i = 0; i < kPairs; ++i)
    steps.push_back(std::pow(10'000.0f, -static_cast<float>(i) / kPairs));
  const SharedArray<int64_t> positions(at);
  const SharedArray<float> frequencies(steps);
  const int64_t bytes = kv_record_bytes(KvFormat::kFp8, kDim);
  const SharedArray<uint8_t> records[2] = {
      SharedArray<uint8_t>(kRows * bytes), SharedArray<uint8_t>(kRows * bytes)};
  const SharedArray<bf16> keys[2] = {SharedArray<bf16>(kv), SharedArray<bf16>(kv)};
  const SharedArray<bf16> queries[2] = {SharedArray<bf16>(q), SharedArray<bf16>(q)};
  for (const int i : {0, 1}) {
    const WindowKeys op{
        .records = records[i].rows(kRows),
        .kv = keys[i].rows(kRows),
        .norm = norm.view(kDim),
        .positions = positions.view(kRows),
        .frequencies = frequencies.view(kPairs),
        .eps = 1e-6f,
        .query = {
            .y = queries[i].rows(kRows),
            .x = queries[i].rows(kRows),
            .weight = q_norm.view(kQuery),
            .eps = 1e-6f}};
    if (i == 0) {
      ref_ops().window_keys(machine.host(), op);
    } else {
      canonical_cuda_ops().window_keys(machine.device(), op);
    }
  }
  machine.wait();
  EXPECT_EQ(different_bits(records[1], records[0]), 0);
  EXPECT_EQ(different_bits(queries[1], queries[0]), 0);
}

TEST(CanonicalOnCuda, GatesEngramLikeTheReference) {
  DI_NEEDS_GPU();
  constexpr int64_t kStreams = 4;
  Machine machine;
  std::mt19937 random(8);
  for (const int64_t width : {64, 256, 5120}) {
    const std::vector<bf16> h = random_bf16(random, kRows * kStreams * width);
    const SharedArray<bf16> kv(random_bf16(random, kRows * (kStreams + 1) * width));
    const SharedArray<bf16> q(random_bf16(random, kStreams * width));
    const SharedArray<bf16> k(random_bf16(random, kStreams * width));
    const SharedArray<bf16> streams[2] = {SharedArray<bf16>(h), SharedArray<bf16>(h)};
    const SharedArray<float> gate[2] = {
        SharedArray<float>(kRows * kStreams), SharedArray<float>(kRows * kStreams)};
    for (const int i : {0, 1}) {
      const EngramGate op{
          .h = streams[i].view(kRows, kStreams, width),
          .kv = kv.rows(kRows),
          .q_weight = q.rows(kStreams),
          .k_weight = k.rows(kStreams),
          .is_image = {},
          .gate = gate[i].rows(kRows)};
      if (i == 0) {
        ref_ops().engram_gate(machine.host(), op);
      } else {
        canonical_cuda_ops().engram_gate(machine.device(), op);
      }
    }
    machine.wait();
    EXPECT_EQ(different_bits(streams[1], streams[0]), 0) << width;
    EXPECT_EQ(different_bits(gate[1], gate[0]), 0) << width;
  }
}

TEST(CanonicalOnCuda, AttendsLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const AttentionShape& shape :
       {AttentionShape{4, 128, 128, 64, 2, KvFormat::kFp4},
        AttentionShape{64, 512, 128, 128, 4, KvFormat::kFp4},
        AttentionShape{5, 512, 64, 0, 0, KvFormat::kFp8}}) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      testing::RandomAttention random(seed, shape, 2);
      const testing::DeviceAttention device(random);
      canonical_cuda_ops().sparse_attention(machine.device(), device.op());
      std::vector<bf16> expected(static_cast<std::size_t>(random.op().q.size()));
      SparseAttention host = random.op();
      host.o = View<bf16, 3>(expected.data(), host.q.dim(0), host.q.dim(1), host.q.dim(2));
      ref_ops().sparse_attention(machine.host(), host);
      EXPECT_TRUE(cpu::testing::same_bits(device.output(), expected)) << shape.dim << " " << seed;
    }
  }
}

TEST(CanonicalOnCuda, SelectsLikeTheReference) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const IndexShape& shape :
       {IndexShape{32, 128, 4, 64, 64, 4, 100}, IndexShape{3, 32, 2, 20, 16, 5, 100}}) {
    const testing::RandomIndex random(9, shape, {{0, 40}, {1500, 9}, {700, 1}});
    const testing::RandomIndex::OnDevice device(random);
    const int64_t rows = random.rows();
    std::vector<int32_t> selected(static_cast<std::size_t>(rows * shape.topk));
    std::vector<int32_t> candidates(static_cast<std::size_t>(rows * shape.blocks));
    const DeviceArray<int32_t> found(std::ssize(selected));
    const DeviceArray<int32_t> found_candidates(std::ssize(candidates));
    IndexSelect host = random.host();
    host.selected = View<int32_t, 2>(selected.data(), rows, shape.topk);
    host.candidates_out = View<int32_t, 2>(candidates.data(), rows, shape.blocks);
    ref_ops().index_select(machine.host(), host);
    IndexSelect op = device.op();
    op.selected = View<int32_t, 2>(found.data(), rows, shape.topk);
    op.candidates_out = View<int32_t, 2>(found_candidates.data(), rows, shape.blocks);
    canonical_cuda_ops().index_select(machine.device(), op);
    EXPECT_EQ(found.read(), selected) << shape.heads << " heads";
    EXPECT_EQ(found_candidates.read(), candidates) << shape.heads << " heads";
  }
}

}  // namespace
}  // namespace di::ops::cuda
