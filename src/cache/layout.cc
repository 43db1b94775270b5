#include "cache/layout.h"

#include "base/math.h"
#include "config/layer_role.h"

namespace di::cache {
namespace {

constexpr int64_t kSectionAlignment = 64;  // a cache line: no two sections share one

void add_owner(const ModelConfig& config, int64_t layer, int64_t ratio, Layout& layout) {
  BlockSection section;
  section.layer = layer;
  section.ratio = ratio;
  section.entries_per_block = kBlockTokens / ratio;
  section.index_code_bytes = config.indexer.index_head_dim / 2;
  const int64_t index_scale_bytes = config.indexer.index_head_dim / 32;
  section.kv_record_bytes = ops::kv_record_bytes(layout.kv_format, config.attention.head_dim);
  section.index_offset = layout.block_bytes;
  const int64_t index_bytes =
      section.entries_per_block * (section.index_code_bytes + index_scale_bytes);
  section.kv_offset = align_up(section.index_offset + index_bytes, kSectionAlignment);
  layout.block_bytes = align_up(
      section.kv_offset + section.entries_per_block * section.kv_record_bytes, kSectionAlignment
  );
  layout.owner_of[static_cast<std::size_t>(layer)] = static_cast<int64_t>(layout.owners.size());
  layout.owners.push_back(section);
}

SlotSection add_slot_section(int64_t length, int64_t record_bytes, Layout& layout) {
  const SlotSection section{layout.slot_bytes, length, record_bytes};
  layout.slot_bytes = align_up(layout.slot_bytes + length * record_bytes, kSectionAlignment);
  return section;
}

}  // namespace

Layout make_layout(const ModelConfig& config) {
  Layout layout;
  layout.kv_format = config.attention.use_fp4_sparse_kv ? ops::KvFormat::kFp4 : ops::KvFormat::kFp8;
  layout.owner_of.assign(static_cast<std::size_t>(config.num_hidden_layers), -1);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerRole role = layer_role(config, layer);
    if (role.is_kv_source) add_owner(config, layer, role.ratio, layout);
  }
  const int64_t head_dim = config.attention.head_dim;
  const int64_t window_bytes = ops::kv_record_bytes(ops::KvFormat::kFp8, head_dim);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    layout.rings.push_back(
        add_slot_section(config.attention.sliding_window + kRollbackTokens, window_bytes, layout)
    );
  }
  for (const BlockSection& owner : layout.owners) {
    const int64_t length = owner.ratio > 1 ? owner.ratio - 1 + kRollbackTokens : 0;
    layout.carries.push_back(
        add_slot_section(length, 2 * head_dim * static_cast<int64_t>(sizeof(float)), layout)
    );
  }
  return layout;
}

}  // namespace di::cache
