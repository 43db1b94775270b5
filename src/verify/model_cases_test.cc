// The golden cases on both backends, and the operator cases.
#include "verify/model_cases.h"

#include <gtest/gtest.h>

#include <string>

namespace di::verify {
namespace {

const std::string kModel = std::string(DI_TESTDATA) + "/model";

void expect_all_passed(const std::vector<CaseReport>& reports) {
  EXPECT_FALSE(reports.empty());
  for (const CaseReport& report : reports) {
    EXPECT_EQ(report.outcome, Outcome::kPassed) << report.name << ": " << report.note;
    for (const TensorCheck& check : report.tensors) {
      EXPECT_TRUE(check.passed()) << report.name << " " << check.name << ": rel " << check.rel_l2
                                  << " row " << check.worst_row << " unequal " << check.unequal << " "
                                  << check.problem;
    }
  }
}

TEST(ModelCases, RefReproducesEveryCaseBitForBit) {
  ThreadPool pool(1);
  expect_all_passed(verify_model_cases({kModel, kModel + "/tiny", true}, ops::ref_ops(), pool));
}

}  // namespace
}  // namespace di::verify
