// The bytes of a sequence's caches, for the release and for small variants of it.
#include "cache/layout.h"

#include <gtest/gtest.h>

#include "config/known_models.h"

namespace di::cache {
namespace {

TEST(CacheLayout, RecordsOfTheReleaseHaveTheirKnownSizes) {
  const Layout layout = make_layout(v41_flash_config());
  EXPECT_EQ(layout.kv_format, ops::KvFormat::kFp4);
  ASSERT_EQ(layout.owners.size(), 4);
  for (const BlockSection& owner : layout.owners) {
    EXPECT_EQ(owner.kv_record_bytes, 288);
    EXPECT_EQ(owner.index_code_bytes + owner.index_code_bytes / 16, 68);
    EXPECT_EQ(owner.entries_per_block, kBlockTokens / owner.ratio);
  }
  EXPECT_EQ(layout.rings[0].record_bytes, 528);
}

TEST(CacheLayout, ATokenOfTheReleaseCosts891Bytes) {
  const Layout layout = make_layout(v41_flash_config());
  EXPECT_GE(layout.bytes_per_token(), 890);  // 3 · (288 + 68) / 2 + (288 + 68)
  EXPECT_LE(layout.bytes_per_token(), 891);
}

TEST(CacheLayout, RingsOutlastRejectedRows) {
  const ModelConfig config = v41_flash_config();
  const Layout layout = make_layout(config);
  ASSERT_EQ(std::ssize(layout.rings), config.num_layers());
  for (const SlotSection& ring : layout.rings)
    EXPECT_EQ(ring.length, 134);
  ASSERT_EQ(layout.carries.size(), layout.owners.size());
  for (std::size_t i = 0; i < layout.owners.size(); ++i)
    EXPECT_EQ(layout.carries[i].length, layout.owners[i].ratio == 2 ? 7 : 0);
}

TEST(CacheLayout, EntriesInFp8HaveTheSizeOfWindowRecords) {
  ModelConfig config = v41_flash_config();
  config.attention.use_fp4_sparse_kv = false;
  const Layout layout = make_layout(config);
  EXPECT_EQ(layout.kv_format, ops::KvFormat::kFp8);
  for (const BlockSection& owner : layout.owners)
    EXPECT_EQ(owner.kv_record_bytes, 528);
}

TEST(CacheLayout, OnlyLayersThatCompressOwnEntries) {
  const ModelConfig config = v41_flash_config();
  const Layout layout = make_layout(config);
  int64_t owners = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const int64_t owner = layout.owner_of[static_cast<std::size_t>(layer)];
    if (owner < 0) continue;
    EXPECT_EQ(owner, owners++);
    EXPECT_EQ(layout.owners[static_cast<std::size_t>(owner)].layer, layer);
  }
  EXPECT_EQ(owners, std::ssize(config.attention.kv_source_layer_ids));
}

TEST(CacheLayout, SectionsDoNotOverlap) {
  const Layout layout = make_layout(v41_flash_config());
  int64_t end = 0;
  for (const BlockSection& owner : layout.owners) {
    EXPECT_GE(owner.index_offset, end);
    EXPECT_GE(owner.kv_offset, owner.index_offset + owner.entries_per_block * 68);
    end = owner.kv_offset + owner.entries_per_block * owner.kv_record_bytes;
  }
  EXPECT_LE(end, layout.block_bytes);
  end = 0;
  for (const auto* sections : {&layout.rings, &layout.carries}) {
    for (const SlotSection& section : *sections) {
      EXPECT_GE(section.offset, end);
      end = section.offset + section.length * section.record_bytes;
    }
  }
  EXPECT_LE(end, layout.slot_bytes);
}

}  // namespace
}  // namespace di::cache
