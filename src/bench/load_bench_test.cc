// The load benchmarks run and give every field.
#include "bench/load_bench.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace di::bench {
namespace {

TEST(LoadBench, GivesEveryField) {
  ThreadPool pool(2);
  const Json result = bench_load(std::filesystem::temp_directory_path(), 1 << 20, pool);
  EXPECT_EQ(result.at("name").as_string(), "load");
  for (const char* key : {"backend", "isa", "shape"})
    EXPECT_TRUE(result.at(key).is_string()) << key;
  for (const char* key : {"us", "gbps", "share"})
    EXPECT_GT(result.at(key).as_number(), 0) << key;
  EXPECT_TRUE(result.at("rows").is_integer());
  EXPECT_EQ(result.at("gflops").as_number(), 0);
}

TEST(LoadBench, OpensAFolderOfTheReleasesSize) {
  ThreadPool pool(2);
  const Json result = bench_open(std::filesystem::temp_directory_path(), pool);
  EXPECT_EQ(result.at("rows").as_integer(), 96085);
}

}  // namespace
}  // namespace di::bench
