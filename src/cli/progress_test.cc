// The progress bar: its line, and its silence in files.
#include "cli/progress.h"

#include <cstdio>

#include <gtest/gtest.h>

namespace di::cli {
namespace {

TEST(ProgressBar, ShowsShareSizeAndRate) {
  EXPECT_EQ(
      progress_line("Loading", 1'500'000'000, 3'000'000'000, 0.75),
      "Loading  [###############               ]  50 %  1.5 of 3.0 GB  2.0 GB/s"
  );
  EXPECT_EQ(
      progress_line("Drafting", 1500, 3000, 7.5, ProgressUnit::kTokens),
      "Drafting  [###############               ]  50 %  1500 of 3000 tokens  200 tokens/s"
  );
  EXPECT_NE(progress_line("Loading", 0, 0, 0).find("  0 %"), std::string::npos);
}

TEST(ProgressBar, WritesNothingToAFile) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("Loading", ProgressUnit::kBytes, file);
    for (int i = 0; i <= 100; ++i)
      bar.update(i, 100);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

}  // namespace
}  // namespace di::cli
