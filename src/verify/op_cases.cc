// The files of operator cases and who runs each.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "verify/model_cases.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

namespace fs = std::filesystem;

struct OpFile {
  const char* name;
  void (*run)(OpCase&);
};

constexpr OpFile kFiles[] = {
    {"rounding", run_rounding_case},
    {"quant_fp8", run_quant_fp8_case},
    {"quant_fp4", run_quant_fp4_case},
    {"golden_bytes", run_golden_bytes_case},
    {"scalar", run_scalar_case},
    {"rmsnorm", run_rmsnorm_case},
    {"rope", run_rope_case},
    {"mhc", run_mhc_case},
    {"engram_hash", run_engram_hash_case},
    {"engram_gate", run_engram_gate_case},
    {"engram_lookup", run_engram_lookup_case},
    {"linear", run_linear_case},
    {"swiglu", run_swiglu_case},
    {"router", run_router_case},
    {"router_hash_v4", run_router_hash_v4_case},
    {"compressor", run_compressor_case},
    {"indexer", run_indexer_case},
    {"sparse_attn", run_sparse_attn_case},
};

CaseReport run_file(
    const fs::path& path, const ops::OpTable& ops, ops::Exec& exec, Strictness strictness
) {
  CaseReport report;
  report.name = path.stem().string();
  const auto* file = std::find_if(std::begin(kFiles), std::end(kFiles), [&](const OpFile& known) {
    return report.name == known.name;
  });
  if (file == std::end(kFiles)) {
    report.outcome = Outcome::kSkipped;
    report.note = "this build has no such operator";
    return report;
  }
  try {
    const Fixture fixture(path.string());
    const Arena::Scope scope(exec.scratch);
    OpCase test(fixture, ops, exec, strictness, report);
    file->run(test);
  } catch (const std::exception& error) {
    report.fail(error.what());
  }
  return report;
}

}  // namespace

std::vector<CaseReport> verify_op_cases(
    const std::string& folder, const ops::OpTable& ops, ThreadPool& pool, bool exact
) {
  std::vector<CaseReport> reports;
  const fs::path files = fs::path(folder) / "ops";
  if (!fs::is_directory(files)) return reports;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(files)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ops::OwnedExec exec(pool, ops.memory());
  for (const fs::path& path : paths) {
    CaseReport report =
        run_file(path, ops, *exec, exact ? Strictness::kExact : Strictness::kIsolated);
    report.name = "ops/" + path.filename().string();
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace di::verify
