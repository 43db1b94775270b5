// What a device computes against all golden files, within the tolerances of a backend that sums in
// other orders (docs/numerics.md). Skipped where there is no device.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/loaded_model.h"
#include "golden_run.h"
#include "verify/model_cases.h"

namespace di::golden {
namespace {

/// Where the best token leads by less, other orders of summation may choose another one: they move
/// margins by a few tenths (models/seedling/README.md, "Goldens").
constexpr double kCertainMargin = 0.5;

const std::string kFixtures = std::string(DI_TESTDATA) + "/model";

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    try {
      ops_ = &engine::select_ops("cuda", "auto");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  ThreadPool pool_;
  const ops::OpTable* ops_ = nullptr;
};

void expect_all_passed(const std::vector<verify::CaseReport>& reports) {
  EXPECT_FALSE(reports.empty());
  for (const verify::CaseReport& report : reports) {
    EXPECT_NE(report.outcome, verify::Outcome::kFailed) << report.name << ": " << report.note;
    for (const verify::TensorCheck& check : report.tensors) {
      EXPECT_TRUE(check.passed()) << report.name << " " << check.name << ": rel " << check.rel_l2
                                  << " row " << check.worst_row << " unequal " << check.unequal
                                  << " " << check.problem;
    }
  }
}

TEST_F(OnDevice, EveryOperatorFileIsWithinItsTolerance) {
  expect_all_passed(verify::verify_op_cases(kFixtures, *ops_, pool_, /*exact=*/false));
}

TEST_F(OnDevice, EveryModelCaseIsWithinItsTolerance) {
  expect_all_passed(
      verify::verify_model_cases({kFixtures, kFixtures + "/tiny", /*exact=*/false}, *ops_, pool_)
  );
}

TEST_F(OnDevice, GreedyTokensOfTheDefaultModelAgreeWhereMarginsAllow) {
  const verify::LoadedModel model = verify::load_for_verify(DI_SEEDLING, *ops_, pool_);
  const GoldenRunner runner(model, *ops_);
  const Json golden = read_golden("golden.json");
  std::vector<Json> cases = golden.at("cases").as_array();
  cases.push_back(golden.at("long"));
  for (const Json& test : cases) {
    SCOPED_TRACE(test.at("prompt").as_string());
    const auto tokens = integers<int32_t>(test.at("output_ids"));
    const auto prompt = integers<int32_t>(test.at("prompt_ids"));
    const GreedyRun run = runner.greedy(prompt, tokens.size(), tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const double margin = test.at("margin").as_array()[i].as_number();
      if (run.tokens[i] == tokens[i]) continue;
      EXPECT_LT(margin, kCertainMargin) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace di::golden
