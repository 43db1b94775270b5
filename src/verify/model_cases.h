// Runs the cases of a model fixture folder on a backend.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/ops.h"
#include "verify/report.h"

namespace di::verify {

/// What to run, and how strictly to judge it.
struct ModelFolder {
  std::string folder;      ///< holds `cases/` and perhaps `ops/`
  std::string checkpoint;  ///< the model that `cases/` was made with; usually folder/tiny
  bool exact = false;      ///< bit for bit (last bits of fp32 tensors aside) instead of tolerances
};

/// Every file of `cases/`, each in up to three ways: isolated (golden inputs before every part),
/// free, and in the chunkings that the file lists, which must equal one shot bit for bit.
/// Tensors that a case does not hold are not compared; kinds that this build does not compute are
/// named in the report's note.
std::vector<CaseReport> verify_model_cases(
    const ModelFolder& folder, const ops::OpTable& ops, ThreadPool& pool
);

/// Every file of `ops/` that belongs to an op of the table or a scalar format.
std::vector<CaseReport> verify_op_cases(
    const std::string& folder, const ops::OpTable& ops, ThreadPool& pool, bool exact
);

}  // namespace di::verify
