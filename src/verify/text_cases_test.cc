// Every recorded text case.
#include "verify/text_cases.h"

#include <gtest/gtest.h>

namespace di::verify {
namespace {

TEST(TextCases, AllRecordedCasesAgree) {
  const TextReport report = verify_text_folder(DI_TESTDATA "/text");
  for (const TextFileReport& file : report.files) {
    EXPECT_EQ(file.failed, 0) << file.file;
    for (const TextMismatch& mismatch : file.mismatches) {
      ADD_FAILURE() << mismatch.id << "\n  expected " << mismatch.expected << "\n  found "
                    << mismatch.found;
    }
  }
  // Requests, images, one error that cannot arise here and two streams whose reference depends on
  // how it was fed.
  EXPECT_EQ(report.passed(), 2808);
  EXPECT_EQ(report.skipped(), 1209);
}

}  // namespace
}  // namespace di::verify
