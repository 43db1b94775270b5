// One file of operator cases while it runs: its tensors, the backend under test, and the report.
// What an op is given lies where the backend's ops read, and its results are fetched from there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "ops/place.h"
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

  /// A copy of `values` where ops read and write, in this shape. Lives as long as this case.
  template <class T, class... Dims>
  View<T, sizeof...(Dims)> place(const std::vector<T>& values, Dims... dims) {
    const auto placed = room<T>(dims...);
    DI_CHECK(placed.size() == std::ssize(values), "the shape holds all values");
    copy_in(placed.data, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    return placed;
  }
  template <class T>
  View<T, 1> place(const std::vector<T>& values) {
    return place(values, std::ssize(values));
  }

  /// Room for what an op writes. Lives as long as this case.
  template <class T, class... Dims>
  View<T, sizeof...(Dims)> room(Dims... dims) {
    return exec_.scratch.array<T>(dims...);
  }

  /// What a view holds once all ops before are done.
  template <class T, int Rank>
  std::vector<std::remove_const_t<T>> fetch(const View<T, Rank>& view) {
    return ops::fetch(exec_, view);
  }

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
  template <class T, int Rank>
  void check(const std::string& name, const View<T, Rank>& ours) {
    check(name, std::span<const std::remove_const_t<T>>(fetch(ours)));
  }

  /// Says what the file holds and this build does not compute.
  void note(const std::string& text) { report_.note = text; }

 private:
  ops::Weight pack(const ops::Weight& raw, int64_t scale_bytes);
  void copy_in(void* to, const void* from, int64_t bytes) const;

  const Fixture& fixture_;
  const ops::OpTable& ops_;
  ops::Exec& exec_;
  Strictness strictness_;
  CaseReport& report_;
};

/// A step that holds one sequence alone, positions 0 to `count` − 1, and all entries of `ratio`
/// tokens that it completes. Its blocks lie in descending order, so that nothing may rely on order.
class LoneSequence {
 public:
  /// `tokens` and `is_image` lie where ops read; nullptr: nobody asks for them.
  LoneSequence(
      OpCase& test,
      int64_t count,
      int64_t ratio,
      int64_t num_blocks,
      const int32_t* tokens = nullptr,
      const uint8_t* is_image = nullptr
  );

  const ops::Rows& rows() const { return rows_; }
  std::span<const ops::NewEntry> entries() const { return entries_; }
  const int32_t* block_table() const { return block_table_.data(); }  ///< in the machine's memory

 private:
  std::vector<int32_t> block_table_;
  ops::Rows rows_;
  std::span<const ops::NewEntry> entries_;
};

/// One owner layer's paged entries, where ops read and write.
class PagedEntries {
 public:
  /// `entry_bytes` is what one entry occupies in all, `record_bytes` PagedView::record_bytes.
  PagedEntries(
      OpCase& test, int64_t count, int64_t per_block, int64_t entry_bytes, int64_t record_bytes
  );

  /// For `count` index keys of `dim` channels, one for `ratio` tokens.
  static PagedEntries index_keys(OpCase& test, int64_t count, int64_t ratio, int64_t dim);

  const ops::PagedView& view() const { return view_; }
  int64_t num_blocks() const { return num_blocks_; }

  /// The same entries in the machine's memory, as they are once all ops before are done. Valid
  /// until the next call.
  ops::PagedView fetch(OpCase& test);

 private:
  int64_t num_blocks_;
  ops::PagedView view_;
  std::vector<std::byte> fetched_;
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
