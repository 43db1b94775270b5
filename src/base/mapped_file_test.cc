#include "base/mapped_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/error.h"

namespace di {
namespace {

std::string write_file(const std::string& name, std::string_view content) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

ErrorCode code_of_opening(const std::string& path) {
  try {
    MappedFile::open(path);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.code();
  }
  ADD_FAILURE() << path << " was opened";
  return ErrorCode::kIo;
}

TEST(MappedFile, ShowsTheBytesAndFollowsAMove) {
  MappedFile first = MappedFile::open(write_file("mapped_file_move", "seven b"));
  MappedFile second = std::move(first);
  EXPECT_EQ(text_of(second), "seven b");
  second = MappedFile::open(write_file("mapped_file_other", "other"));
  EXPECT_EQ(text_of(second), "other");
  advise(second.bytes(), Advice::kWillNeed);
}

TEST(MappedFile, MapsAnEmptyFileToAnEmptySpan) {
  EXPECT_TRUE(MappedFile::open(write_file("mapped_file_empty", "")).bytes().empty());
}

TEST(MappedFile, NamesTheFileThatIsNotThere) {
  EXPECT_EQ(code_of_opening(::testing::TempDir() + "mapped_file_missing"), ErrorCode::kNotFound);
}

TEST(MappedFile, RefusesADirectory) {
  EXPECT_EQ(code_of_opening(::testing::TempDir()), ErrorCode::kIo);
}

TEST(ReadTextFile, RefusesWhatIsLongerThanTheLimit) {
  const std::string path = write_file("read_text_file_limit", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_THROW(read_text_file(path, 4), Error);
}

}  // namespace
}  // namespace di
