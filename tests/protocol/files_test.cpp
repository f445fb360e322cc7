#include "protocol/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace lockstep::protocol {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() : folder_((fs::temp_directory_path() / "lockstep-files-XXXXXX").string()) { ::mkdtemp(folder_.data()); }
  ~Files() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(Files, AreReadWholeUpToALimit) {
  const std::string bytes(200'000, 'x');
  std::ofstream(path("a")) << bytes;
  EXPECT_EQ(read_file(path("a")), bytes);
  EXPECT_EQ(read_file(path("a"), bytes.size()), bytes);
  EXPECT_FALSE(read_file(path("a"), bytes.size() - 1));
  EXPECT_EQ(errno, EFBIG);
  EXPECT_FALSE(read_file(path("none")));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(read_file(folder_));
  EXPECT_EQ(errno, EISDIR);
  EXPECT_NE(read_file("/proc/self/status").value_or(""), "");
}

TEST_F(Files, AreReplacedAtOnceWithTheirMode) {
  std::ofstream(path("a")) << "old";
  ::chmod(path("a").c_str(), 0644);
  EXPECT_EQ(replace_file(path("a"), "new", 0600), 0);
  EXPECT_EQ(read_file(path("a")), "new");
  struct stat status = {};
  ::stat(path("a").c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0600u) << "the old file's mode would show a secret";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(Files, AreNotWrittenThroughWhatSomebodyHasPutThere) {
  std::ofstream(path("other")) << "other";
  ::symlink(path("other").c_str(), path("a." + std::to_string(::getpid())).c_str());
  EXPECT_EQ(replace_file(path("a"), "secret", 0600), 0);
  EXPECT_EQ(read_file(path("other")), "other");
  EXPECT_EQ(read_file(path("a")), "secret");
}

TEST_F(Files, ThatCannotBeReplacedAreLeftAlone) {
  fs::create_directory(path("a"));
  std::ofstream(path("a/file")) << "x";
  EXPECT_NE(replace_file(path("a"), "new", 0600), 0);
  EXPECT_TRUE(fs::exists(path("a/file")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left behind";
  EXPECT_EQ(replace_file(path("none/a"), "new", 0600), ENOENT);
}

}  // namespace
}  // namespace lockstep::protocol
