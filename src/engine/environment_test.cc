// Where files go that may be computed again.
#include "engine/environment.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace di::engine {
namespace {

TEST(CacheFolder, FollowsTheUsersVariables) {
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  ::setenv("HOME", "/homes/me", 1);
  EXPECT_EQ(default_cache_folder(), "/caches/deepinfer");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_cache_folder(), "/homes/me/.cache/deepinfer");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(default_cache_folder(), "/homes/me/.cache/deepinfer");
  ::setenv("HOME", "", 1);
  EXPECT_EQ(default_cache_folder(), "");
  ::unsetenv("HOME");
  EXPECT_EQ(default_cache_folder(), "");
}

}  // namespace
}  // namespace di::engine
