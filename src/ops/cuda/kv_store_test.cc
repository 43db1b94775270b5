#include "ops/cuda/kv_store.h"

#include "ops/cpu/testing.h"
#include "ops/cuda/attention_testing.h"
#include "ops/ref/ref.h"

namespace di::ops::cuda {
namespace {

using cpu::RandomBatch;
using testing::DeviceArray;
using testing::DeviceRows;
using testing::Machine;

/// Values of many magnitudes, zeros among them.
std::vector<bf16> random_values(RandomBatch& random, int64_t count) {
  std::vector<bf16> values(static_cast<std::size_t>(count));
  float deviation = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 16 == 0) deviation = std::exp2(static_cast<float>(random.integer(-20, 12)));
    values[i] = random.integer(0, 9) == 0 ? bf16{0} : to_bf16(random.normal(deviation));
  }
  return values;
}

TEST(KvStoreOnCudaTest, MakesTheReferencesWindowRecords) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{512}, int64_t{128}, int64_t{96}, int64_t{32}}) {
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{300}}) {
      RandomBatch random(static_cast<unsigned>(dim + rows), 1, 10);
      const std::vector<bf16> kv = random_values(random, rows * dim);
      const int64_t bytes = kv_record_bytes(KvFormat::kFp8, dim);
      std::vector<uint8_t> expected(static_cast<std::size_t>(rows * bytes));
      ref::window_records(
          {View<uint8_t, 2>(expected.data(), rows, bytes),
           View<const bf16, 2>(kv.data(), rows, dim)},
          {0, rows}
      );
      const DeviceArray<bf16> device_kv(kv);
      DeviceArray<uint8_t> records(rows * bytes);
      records.poison();
      window_records(
          machine.device(),
          {View<uint8_t, 2>(records.data(), rows, bytes),
           View<const bf16, 2>(device_kv.data(), rows, dim)}
      );
      EXPECT_EQ(records.read(), expected) << rows << " rows of " << dim;
    }
  }
}

TEST(KvStoreOnCudaTest, StoresTheNewestRecordsOfEachSequence) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{512}, int64_t{128}, int64_t{96}}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      RandomBatch random(seed, 6, 300);
      const int64_t bytes = kv_record_bytes(KvFormat::kFp8, dim);
      const int64_t length = random.integer(3, 12);
      // Rows that no sequence owns follow, and the last sequence owns none.
      const int64_t rows = random.count() + 3;
      const std::vector<uint8_t> records =
          testing::random_records(random, rows, KvFormat::kFp8, dim);
      std::vector<uint8_t> ring(
          static_cast<std::size_t>(random.num_slots() * length * bytes), 0xee
      );
      const DeviceArray<uint8_t> device_ring(ring);
      const DeviceArray<uint8_t> device_records(records);
      std::vector<SequenceRows> sequences(
          random.rows().sequences.begin(), random.rows().sequences.end()
      );
      if (sequences.size() > 1) sequences.back().num_rows = 0;
      Rows own = random.rows();
      own.sequences = sequences;
      const DeviceRows device_rows(own, 3);
      WindowStore op;
      op.ring = {
          .base = reinterpret_cast<std::byte*>(ring.data()),
          .slot_stride = length * bytes,
          .length = length,
          .record_bytes = bytes};
      op.records = View<const uint8_t, 2>(records.data(), rows, bytes);
      op.rows = own;
      ref::window_store(op, {0, std::ssize(sequences)});
      op.ring.base = reinterpret_cast<std::byte*>(device_ring.data());
      op.records.data = device_records.data();
      op.rows = device_rows.rows();
      window_store(machine.device(), op);
      EXPECT_EQ(device_ring.read(), ring) << "seed " << seed << ", " << dim << " channels";
    }
  }
}

TEST(KvStoreOnCudaTest, RotatesOtherRowsBesideTheStore) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const int64_t dim : {int64_t{512}, int64_t{96}}) {
    for (const int64_t rows : {int64_t{1}, int64_t{9}, int64_t{70}}) {
      RandomBatch random(static_cast<unsigned>(dim + rows), 4, 300);
      const int64_t bytes = kv_record_bytes(KvFormat::kFp8, dim);
      const int64_t heads = 5;
      const int64_t pairs = dim == 512 ? 32 : 3;
      const int64_t length = 8;
      const std::vector<uint8_t> records =
          testing::random_records(random, random.count(), KvFormat::kFp8, dim);
      std::vector<uint8_t> ring(static_cast<std::size_t>(random.num_slots() * length * bytes));
      std::vector<bf16> o = random_values(random, rows * heads * dim);
      std::vector<int64_t> positions;
      for (int64_t row = 0; row < rows; ++row)
        positions.push_back(random.integer(0, 1 << 20));
      std::vector<float> frequencies;
      for (int64_t pair = 0; pair < pairs; ++pair)
        frequencies.push_back(std::exp2(-static_cast<float>(pair) * 0.37f));
      const DeviceArray<uint8_t> device_ring(ring);
      const DeviceArray<uint8_t> device_records(records);
      const DeviceArray<bf16> device_o(o);
      const DeviceArray<int64_t> device_positions(positions);
      const DeviceArray<float> device_frequencies(frequencies);
      const DeviceRows device_rows(random.rows(), 2);
      WindowStore op{
          .ring =
              {.base = reinterpret_cast<std::byte*>(ring.data()),
               .slot_stride = length * bytes,
               .length = length,
               .record_bytes = bytes},
          .records = View<const uint8_t, 2>(records.data(), random.count(), bytes),
          .rows = random.rows(),
          .rotation = {
              .x = View<bf16, 3>(o.data(), rows, heads, dim),
              .positions = View<const int64_t, 1>(positions.data(), rows),
              .frequencies = View<const float, 1>(frequencies.data(), pairs),
              .inverse = true}};
      ref_ops().window_store(machine.host(), op);
      op.ring.base = reinterpret_cast<std::byte*>(device_ring.data());
      op.records.data = device_records.data();
      op.rows = device_rows.rows();
      op.rotation.x.data = device_o.data();
      op.rotation.positions.data = device_positions.data();
      op.rotation.frequencies.data = device_frequencies.data();
      window_store(machine.device(), op);
      EXPECT_EQ(device_ring.read(), ring) << rows << " rows of " << dim;
      EXPECT_TRUE(cpu::testing::same_bits(device_o.read(), o)) << rows << " rows of " << dim;
    }
  }
}

TEST(KvStoreOnCudaTest, StoresTheReferencesCompressedRecords) {
  DI_NEEDS_GPU();
  Machine machine;
  for (const KvFormat format : {KvFormat::kFp4, KvFormat::kFp8}) {
    for (const int64_t dim : {int64_t{512}, int64_t{128}, int64_t{32}}) {
      RandomBatch random(static_cast<unsigned>(dim), 6, 600);
      const int64_t bytes = kv_record_bytes(format, dim);
      std::vector<NewEntry> entries;
      for (int64_t s = 0; s < std::ssize(random.rows().sequences); ++s) {
        for (int64_t j = s; j < 150; j += 1 + s)
          entries.push_back({j % 7 == 3 ? -1 : 0, s, j});
      }
      const auto count = std::ssize(entries);
      const std::vector<bf16> kv = random_values(random, count * dim);
      const int64_t stride = 64 * bytes + 32;
      std::vector<uint8_t> cache(static_cast<std::size_t>(random.num_blocks() * stride), 0xee);
      const DeviceArray<uint8_t> device_cache(cache);
      const DeviceArray<bf16> device_kv(kv);
      const DeviceArray<NewEntry> device_entries(entries);
      const DeviceRows device_rows(random.rows(), 5);
      CompressedStore op;
      op.cache = {
          .base = reinterpret_cast<std::byte*>(cache.data()),
          .block_stride = stride,
          .entries_per_block = 64,
          .record_bytes = bytes};
      op.format = format;
      op.rows = random.rows();
      op.kv = View<const bf16, 2>(kv.data(), count, dim);
      op.entries = entries;
      for (int64_t i = 0; i < count; ++i) {
        if (entries[static_cast<std::size_t>(i)].row >= 0) ref::compressed_store(op, {i, i + 1});
      }
      op.cache.base = reinterpret_cast<std::byte*>(device_cache.data());
      op.rows = device_rows.rows();
      op.kv.data = device_kv.data();
      op.entries = {device_entries.data(), entries.size()};
      compressed_store(machine.device(), op);
      EXPECT_EQ(device_cache.read(), cache) << dim << " channels";
    }
  }
}

TEST(KvStoreOnCudaTest, RefusesWidthsThatSplitAGroup) {
  DI_NEEDS_GPU();
  Machine machine;
  EXPECT_ANY_THROW(window_records(
      machine.device(), {View<uint8_t, 2>(nullptr, 1, 49), View<const bf16, 2>(nullptr, 1, 48)}
  ));
}

}  // namespace
}  // namespace di::ops::cuda
