#include "shell/terminal/history_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

using namespace lockstep::shell;
using testing::ElementsAre;

namespace {

class HistoryFileTest : public testing::Test {
 protected:
  HistoryFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-history-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~HistoryFileTest() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "state" / "history").string(); }

  std::filesystem::path folder_;
};

}  // namespace

TEST_F(HistoryFileTest, KeepsCellsOfSeveralLines) {
  const HistoryFile file(path());
  EXPECT_TRUE(file.load().empty());
  EXPECT_TRUE(file.add("int a;"));
  EXPECT_TRUE(file.add("for (;;) {\n  \"ä\\n\";\n}"));
  EXPECT_THAT(file.load(), ElementsAre("int a;", "for (;;) {\n  \"ä\\n\";\n}"));
}

TEST_F(HistoryFileTest, DamagedLinesAreLeftOut) {
  const HistoryFile file(path());
  file.add("one");
  std::ofstream(path(), std::ios::app) << "{broken\n\n";
  file.add("two");
  EXPECT_THAT(file.load(), ElementsAre("one", "two"));
}

TEST_F(HistoryFileTest, DoesNotGrowForEver) {
  const HistoryFile file(path());
  for (int i = 0; i < 25; ++i) file.add(std::to_string(i));
  EXPECT_EQ(file.load(10).size(), 10u);
  EXPECT_THAT(file.load(100).size(), 10u);
  EXPECT_EQ(file.load(10).back(), "24");
}

TEST_F(HistoryFileTest, TwoTerminalsLoseNothing) {
  const auto write = [&](const std::string& name) {
    const HistoryFile file(path());
    for (int i = 0; i < 200; ++i) file.add(name + std::string(300, 'x'));
  };
  std::filesystem::create_directories(folder_ / "state");
  std::thread first(write, "a"), second(write, "b");
  first.join();
  second.join();
  EXPECT_EQ(HistoryFile(path()).load().size(), 400u);
}

TEST_F(HistoryFileTest, AFolderThatCantBeWrittenIsNoDisaster) {
  std::ofstream(folder_ / "state") << "a file where the folder should be";
  const HistoryFile file(path());
  EXPECT_FALSE(file.add("int a;"));
  EXPECT_TRUE(file.load().empty());
  EXPECT_FALSE(HistoryFile("").add("int a;"));
}
