#include "base/suggest.h"

#include <gtest/gtest.h>

namespace di {
namespace {

TEST(Suggest, NamesTheClosest) {
  const std::vector<std::string> known = {"threads", "context", "chunk"};
  EXPECT_EQ(suggestion("thread", known), "; did you mean threads?");
  EXPECT_EQ(suggestion("contxet", known), "; did you mean context?");
  EXPECT_EQ(suggestion("chunks", known), "; did you mean chunk?");
}

TEST(Suggest, IsSilentWhenNothingIsClose) {
  EXPECT_EQ(suggestion("temperature", {"threads", "context"}), "");
  EXPECT_EQ(suggestion("", {"threads"}), "");
  EXPECT_EQ(suggestion("threads", {}), "");
  EXPECT_EQ(suggestion(std::string(100000, 'a'), {"threads"}), "");
}

}  // namespace
}  // namespace di
