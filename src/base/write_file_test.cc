// Files that are written at once: all or nothing, and nothing left behind.
#include "base/write_file.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mapped_file.h"

namespace di {
namespace {

namespace fs = std::filesystem;

class WriteFile : public testing::Test {
 protected:
  WriteFile() {
    const std::string name = "deepinfer_write_file_" + std::to_string(::getpid());
    folder_ = fs::temp_directory_path() / name;
    fs::create_directories(folder_);
  }
  ~WriteFile() override { fs::remove_all(folder_); }

  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator())
    );
  }

  fs::path folder_;
};

TEST_F(WriteFile, WritesAndReplaces) {
  const std::string path = folder_ / "file";
  write_file_at_once(path, "one");
  EXPECT_EQ(read_text_file(path), "one");
  ::chmod(path.c_str(), 0640);
  write_file_at_once(path, std::string(100000, 'x'));
  EXPECT_EQ(read_text_file(path), std::string(100000, 'x'));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(WriteFile, LeavesNothingWhereItCannotWrite) {
  const std::string nowhere = folder_ / "missing" / "file";
  try {
    write_file_at_once(nowhere, "text");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find(nowhere), std::string::npos) << error.what();
  }
  const std::string taken = folder_ / "folder";
  fs::create_directories(taken);
  EXPECT_THROW(write_file_at_once(taken, "text"), Error);
  EXPECT_EQ(num_files(), 1u) << "the folder alone";
}

}  // namespace
}  // namespace di
