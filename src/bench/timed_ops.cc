#include "bench/timed_ops.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace di::bench {
namespace {

constexpr std::size_t kMaxOps = 32;

// Plain functions carry no state, so the table that is timed and its sums live here.
struct Sums {
  const ops::OpTable* table = nullptr;
  ops::OpTable timed{};
  std::array<OpTime, kMaxOps> times;
  std::size_t count = 0;
};

Sums& sums() {
  static Sums instance;
  return instance;
}

template <class Op>
using Entry = void (*ops::OpTable::*)(ops::Exec&, const Op&);

/// The timed twin of one table entry. `kIndex` is its place in the sums.
template <std::size_t kIndex, class Op, Entry<Op> kEntry>
void run_timed(ops::Exec& exec, const Op& op) {
  const auto start = std::chrono::steady_clock::now();
  (sums().table->*kEntry)(exec, op);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  ++sums().times[kIndex].calls;
  sums().times[kIndex].seconds += elapsed.count();
}

template <std::size_t kIndex, class Op, Entry<Op> kEntry>
void install(const char* name) {
  sums().timed.*kEntry = run_timed<kIndex, Op, kEntry>;
  sums().times[kIndex].name = name;
  sums().count = std::max(sums().count, kIndex + 1);
}

}  // namespace

const ops::OpTable& timed_ops(const ops::OpTable& table) {
  using ops::OpTable;
  sums().table = &table;
  sums().timed = table;
  install<0, ops::QuantizeFp8, &OpTable::quantize_fp8>("quantize_fp8");
  install<1, ops::LinearQ8, &OpTable::linear_q8>("linear_q8");
  install<2, ops::Linear, &OpTable::linear>("linear");
  install<3, ops::RmsNorm, &OpTable::rms_norm>("rms_norm");
  install<4, ops::Rope, &OpTable::rope>("rope");
  install<5, ops::EngramLookup, &OpTable::engram_lookup>("engram_lookup");
  install<6, ops::EngramGate, &OpTable::engram_gate>("engram_gate");
  install<7, ops::MhcMix, &OpTable::mhc_mix>("mhc_mix");
  install<8, ops::MhcCollapse, &OpTable::mhc_collapse>("mhc_collapse");
  install<9, ops::MhcExpand, &OpTable::mhc_expand>("mhc_expand");
  install<10, ops::CompressorPool, &OpTable::compressor_pool>("compressor_pool");
  install<11, ops::CarryStore, &OpTable::carry_store>("carry_store");
  install<12, ops::CompressedStore, &OpTable::compressed_store>("compressed_store");
  install<13, ops::QuantizeMxFp4, &OpTable::quantize_mxfp4>("quantize_mxfp4");
  install<14, ops::IndexKeyStore, &OpTable::index_key_store>("index_key_store");
  install<15, ops::IndexSelect, &OpTable::index_select>("index_select");
  install<16, ops::WindowRecords, &OpTable::window_records>("window_records");
  install<17, ops::SparseAttention, &OpTable::sparse_attention>("sparse_attention");
  install<18, ops::WindowStore, &OpTable::window_store>("window_store");
  install<19, ops::Route, &OpTable::route>("route");
  install<20, ops::SwiGlu, &OpTable::swiglu>("swiglu");
  install<21, ops::Experts, &OpTable::experts>("experts");
  return sums().timed;
}

void reset_op_times() {
  for (OpTime& time : sums().times) {
    time.calls = 0;
    time.seconds = 0;
  }
}

std::vector<OpTime> op_times() {
  std::vector<OpTime> called;
  for (std::size_t i = 0; i < sums().count; ++i) {
    if (sums().times[i].calls > 0) called.push_back(sums().times[i]);
  }
  std::sort(called.begin(), called.end(), [](const OpTime& a, const OpTime& b) {
    return a.seconds > b.seconds;
  });
  return called;
}

}  // namespace di::bench
