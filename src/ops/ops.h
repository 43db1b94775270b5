// OpTable: the whole interface of a backend, in the order of the forward pass.
//
// Arguments are plain structs of views; each op's arithmetic is the canonical one of
// docs/numerics.md, whatever the backend. Entries are never null.
#pragma once

#include "base/isa.h"
#include "ops/attention.h"
#include "ops/compressor.h"
#include "ops/draft.h"
#include "ops/engram.h"
#include "ops/exec.h"
#include "ops/indexer.h"
#include "ops/linear.h"
#include "ops/mhc.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/row_moves.h"

namespace di::ops {

/// Rows of `pack` come in multiples of this, so that pieces of one matrix can be packed in
/// parallel.
inline constexpr int64_t kPackRows = 32;

struct OpTable {
  const char* name;  ///< "ref", "cpu" or "cuda"
  const char* isa;   ///< "scalar", or the instruction set of the hot kernels

  /// The memory that every view, span and pointer in an op's arguments points into.
  const Memory& (*memory)();

  /// Bytes of the backend's own form of a matrix; 0 when it reads the checkpoint layout in place.
  int64_t (*packed_bytes)(WeightFormat format, int64_t rows, int64_t cols);
  /// Converts rows [begin, end) of `raw`, which lies in the machine's memory, into their place in
  /// `packed`, which lies in the backend's, value for value. `begin` is
  /// a multiple of kPackRows, and so is `end` unless it is raw.rows. Thread: any, on disjoint rows.
  void (*pack)(const Weight& raw, RowRange rows, std::byte* packed);
  /// Copies bytes of the machine's memory, wherever they lie, into the backend's, and returns when
  /// they are there: for loading. Thread: any.
  void (*load)(const std::byte* from, int64_t bytes, std::byte* to);
  /// Where ops may read bytes of the machine's memory that stay where they lie: a device reads them
  /// through the bus. As long as the result lives. Throws Error{kOutOfMemory}.
  std::shared_ptr<const std::byte> (*pin)(std::span<const std::byte> bytes);
  /// Between these two, pack() and load() may return before the bytes are in place: when their
  /// sources are read. The end waits for all of them, and gives back what they keep between calls.
  /// Thread: one, while no other loads.
  void (*begin_loading)();
  void (*end_loading)();

  void (*embed)(Exec&, const Embed&);
  void (*copy_rows)(Exec&, const CopyRows&);
  void (*rows_finite)(Exec&, const RowsFinite&);
  void (*quantize_fp8)(Exec&, const QuantizeFp8&);
  void (*linear_q8)(Exec&, const LinearQ8&);
  void (*linear)(Exec&, const Linear&);
  void (*linear_set)(Exec&, const LinearSet&);
  void (*rms_norm)(Exec&, const RmsNorm&);
  void (*rope)(Exec&, const Rope&);
  void (*engram_hash)(Exec&, const EngramHash&);
  void (*engram_lookup)(Exec&, const EngramLookup&);
  void (*engram_gate)(Exec&, const EngramGate&);
  void (*mhc_site)(Exec&, const MhcSite&);
  void (*mhc_mix)(Exec&, const MhcMix&);
  void (*mhc_collapse)(Exec&, const MhcCollapse&);
  void (*mhc_expand)(Exec&, const MhcExpand&);
  void (*compressor_pool)(Exec&, const CompressorPool&);
  void (*carry_store)(Exec&, const CarryStore&);
  void (*compressed_store)(Exec&, const CompressedStore&);
  void (*quantize_mxfp4)(Exec&, const QuantizeMxFp4&);
  void (*index_key_store)(Exec&, const IndexKeyStore&);
  void (*index_select)(Exec&, const IndexSelect&);
  void (*window_records)(Exec&, const WindowRecords&);
  void (*window_keys)(Exec&, const WindowKeys&);
  void (*sparse_attention)(Exec&, const SparseAttention&);
  void (*window_store)(Exec&, const WindowStore&);
  void (*route)(Exec&, const Route&);
  void (*swiglu)(Exec&, const SwiGlu&);
  void (*experts)(Exec&, const Experts&);
  void (*markov_round)(Exec&, const MarkovRound&);
};

/// OpTable::load, pin, begin_loading and end_loading of the processor's tables.
void load_on_host(const std::byte* from, int64_t bytes, std::byte* to);
std::shared_ptr<const std::byte> pin_on_host(std::span<const std::byte> bytes);
void no_loading_on_host();

/// The oracle: scalar, double accumulation, the shortest code that is obviously right.
const OpTable& ref_ops();

/// Multi-threaded, with hot kernels for `isa`; bit-identical to ref_ops() for every op.
const OpTable& cpu_ops(Isa isa);

}  // namespace di::ops
