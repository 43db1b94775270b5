// One file of operator cases while it runs: its tensors, the backend under test, and the report.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "verify/compare.h"
#include "verify/fixture.h"

namespace di::verify {

/// What the function of a file is given, with the few things that all of them do.
class OpCase {
 public:
  OpCase(
      const Fixture& fixture,
      const ops::OpTable& table,
      ops::Exec& exec,
      Strictness strictness,
      CaseReport& report
  )
      : fixture_(fixture), ops_(table), exec_(exec), strictness_(strictness), report_(report) {}

  const Fixture& fixture() const { return fixture_; }
  const ops::OpTable& ops() const { return ops_; }
  ops::Exec& exec() const { return exec_; }

  /// Size `d` of a tensor of the file.
  int64_t dim(const std::string& name, std::size_t d) const { return fixture_.shape(name).at(d); }

  /// A tensor of the file as a matrix in the form that the backend wants. `scales` names its
  /// scales; empty: it has none. Lives as long as this case.
  ops::Weight weight(
      ops::WeightFormat format, const std::string& name, const std::string& scales = {}
  );
  /// Any fp32 matrix [rows, cols], in the form that the backend wants.
  ops::Weight weight(const std::vector<float>& values, int64_t rows, int64_t cols);

  /// Compares a result with the tensor `name` of the file, when the file holds it.
  void check(const std::string& name, std::span<const float> ours);
  void check(const std::string& name, std::span<const bf16> ours);
  void check(const std::string& name, std::span<const uint8_t> ours);
  void check(const std::string& name, std::span<const int32_t> ours);
  void check(const std::string& name, std::span<const int64_t> ours);

  /// Says what the file holds and this build does not compute.
  void note(const std::string& text) { report_.note = text; }

 private:
  ops::Weight pack(const ops::Weight& raw);

  const Fixture& fixture_;
  const ops::OpTable& ops_;
  ops::Exec& exec_;
  Strictness strictness_;
  CaseReport& report_;
  std::deque<std::vector<uint8_t>> storage_;  // of weights
};

/// A step that holds one sequence alone, positions 0 to `count` − 1, and all entries of `ratio`
/// tokens that it completes. Its blocks lie in descending order, so that nothing may rely on order.
class LoneSequence {
 public:
  LoneSequence(int64_t count, int64_t ratio, int64_t num_blocks);
  LoneSequence(const LoneSequence&) = delete;

  /// Gives the positions tokens, and marks those of images; both outlive this.
  void set_tokens(const int32_t* tokens, const uint8_t* is_image) {
    sequence_.tokens = tokens;
    sequence_.is_image = is_image;
  }

  ops::Rows rows() const;
  std::span<const ops::NewEntry> entries() const { return entries_; }
  const int32_t* block_table() const { return block_table_.data(); }

 private:
  std::vector<int32_t> block_table_;
  ops::SequenceRows sequence_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<ops::NewEntry> entries_;
};

/// Owns the bytes of one owner layer's paged entries.
class PagedEntries {
 public:
  /// `entry_bytes` is what one entry occupies in all, `record_bytes` PagedView::record_bytes.
  PagedEntries(int64_t count, int64_t per_block, int64_t entry_bytes, int64_t record_bytes);

  /// For `count` index keys of `dim` channels, one for `ratio` tokens.
  static PagedEntries index_keys(int64_t count, int64_t ratio, int64_t dim);

  const ops::PagedView& view() const { return view_; }
  int64_t num_blocks() const { return num_blocks_; }

 private:
  int64_t num_blocks_;
  std::vector<std::byte> bytes_;
  ops::PagedView view_;
};

// The files, each by its function.

void run_rounding_case(OpCase& test);        // op_cases_formats.cc
void run_quant_fp8_case(OpCase& test);       //
void run_quant_fp4_case(OpCase& test);       //
void run_golden_bytes_case(OpCase& test);    //
void run_scalar_case(OpCase& test);          //
void run_rmsnorm_case(OpCase& test);         // op_cases_rows.cc
void run_rope_case(OpCase& test);            //
void run_mhc_case(OpCase& test);             //
void run_engram_hash_case(OpCase& test);     // op_cases_engram.cc
void run_engram_gate_case(OpCase& test);     //
void run_engram_lookup_case(OpCase& test);   //
void run_linear_case(OpCase& test);          // op_cases_linear.cc
void run_swiglu_case(OpCase& test);          //
void run_router_case(OpCase& test);          //
void run_router_hash_v4_case(OpCase& test);  //
void run_compressor_case(OpCase& test);      // op_cases_compressor.cc
void run_indexer_case(OpCase& test);         // op_cases_attention.cc
void run_sparse_attn_case(OpCase& test);     //

}  // namespace di::verify
