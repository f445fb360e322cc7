#include "protocol/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

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

TEST_F(Files, AreReplacedByManyThreadsAtOnce) {
  std::vector<std::jthread> writers;
  std::atomic<int> failures = 0;
  for (const char digit : {'1', '2', '3', '4'})
    writers.emplace_back([&, bytes = std::string(10'000, digit)] {
      for (int i = 0; i < 50; ++i) failures += replace_file(path("a"), bytes, 0600) != 0;
    });
  writers.clear();
  EXPECT_EQ(failures, 0);
  const std::string last = read_file(path("a")).value_or("");
  EXPECT_EQ(last, std::string(10'000, last.empty() ? '?' : last.front()));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
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
