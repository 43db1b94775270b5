// The golden cases on every backend, and the operator cases.
#include "verify/model_cases.h"

#include <string>

#include <gtest/gtest.h>

#include "base/isa.h"

namespace di::verify {
namespace {

const std::string kModel = std::string(DI_TESTDATA) + "/model";

void expect_all_passed(const std::vector<CaseReport>& reports) {
  EXPECT_FALSE(reports.empty());
  for (const CaseReport& report : reports) {
    EXPECT_NE(report.outcome, Outcome::kFailed) << report.name << ": " << report.note;
    for (const TensorCheck& check : report.tensors) {
      EXPECT_TRUE(check.passed()) << report.name << " " << check.name << ": rel " << check.rel_l2
                                  << " row " << check.worst_row << " unequal " << check.unequal
                                  << " " << check.problem;
    }
  }
}

/// Comparisons whose name holds `part`.
std::size_t count_of(const std::vector<CaseReport>& reports, const std::string& part) {
  std::size_t count = 0;
  for (const CaseReport& report : reports) {
    for (const TensorCheck& check : report.tensors)
      count += check.name.find(part) != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(ModelCases, RefReproducesEveryCaseBitForBit) {
  ThreadPool pool(1);
  const auto reports = verify_model_cases({kModel, kModel + "/tiny", true}, ops::ref_ops(), pool);
  expect_all_passed(reports);
  EXPECT_EQ(count_of(reports, "draft"), 310);  // nothing goes unnoticed because its name changed
  EXPECT_EQ(count_of(reports, ".D"), 64);      // 56 of whole runs, 4 of each mode of replay
}

TEST(OpCases, RefReproducesEveryFile) {
  ThreadPool pool(1);
  const std::vector<CaseReport> reports = verify_op_cases(kModel, ops::ref_ops(), pool, true);
  expect_all_passed(reports);
  std::size_t compared = 0;
  for (const CaseReport& report : reports) {
    compared += report.tensors.size();
    EXPECT_EQ(report.outcome == Outcome::kSkipped, report.name == "ops/image_plan.safetensors")
        << report.name;
  }
  EXPECT_EQ(compared, 99);  // no result goes unnoticed because its name changed
}

class CpuCases : public testing::TestWithParam<Isa> {
 protected:
  ThreadPool pool_{2};
  const ops::OpTable& ops_ = ops::cpu_ops(GetParam());
};

// The cpu backend promises the bits of ref, so the exact mode holds for it too.
TEST_P(CpuCases, ReproduceEveryModelCaseBitForBit) {
  expect_all_passed(verify_model_cases({kModel, kModel + "/tiny", true}, ops_, pool_));
}

TEST_P(CpuCases, ReproduceEveryOperatorFile) {
  expect_all_passed(verify_op_cases(kModel, ops_, pool_, true));
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa,
    CpuCases,
    testing::ValuesIn(usable_isas(detect_cpu())),
    [](const testing::TestParamInfo<Isa>& isa) { return std::string(name_of(isa.param)); }
);

// What other backends will be judged by must at least let the exact ones through.
TEST(TolerantCases, AreMetByTheCpuBackend) {
  ThreadPool pool(2);
  const ops::OpTable& ops = ops::cpu_ops(best_isa(detect_cpu()));
  expect_all_passed(verify_model_cases({kModel, kModel + "/tiny", false}, ops, pool));
  expect_all_passed(verify_op_cases(kModel, ops, pool, false));
}

}  // namespace
}  // namespace di::verify
