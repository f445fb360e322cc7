#include "shell/terminal/history_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

using namespace lockstep::shell;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_EQ(file.add("int a;"), "");
  EXPECT_EQ(file.add("for (;;) {\n  \"ä\\n\";\n}"), "");
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
  EXPECT_THAT(file.add("int a;"), HasSubstr("state"));
  EXPECT_TRUE(file.load().empty());
  EXPECT_THAT(HistoryFile("").add("int a;"), HasSubstr("no home"));
}

TEST_F(HistoryFileTest, WhatAnotherUserCanHavePutThereIsNotFollowed) {
  const std::filesystem::path state = folder_ / "state";
  std::filesystem::create_directories(state);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(HistoryFile(path()).add("int a;"), HasSubstr(path()));
  EXPECT_THAT(HistoryFile(path()).load(), IsEmpty());
  std::filesystem::remove(path());
  // In a folder that all may write, whoever is there first decides where the cells go.
  ASSERT_EQ(::chmod(state.c_str(), 0777), 0);
  const std::filesystem::path elsewhere = folder_ / "elsewhere";
  std::ofstream(elsewhere) << "\"theirs\"\n";
  std::filesystem::create_symlink(elsewhere, path());
  EXPECT_THAT(HistoryFile(path()).add("int secret;"), HasSubstr("can be written by all users"));
  EXPECT_THAT(HistoryFile(path()).load(), IsEmpty());
  EXPECT_EQ(std::filesystem::file_size(elsewhere), 9u);
  // One's own link is one's own affair.
  ASSERT_EQ(::chmod(state.c_str(), 0700), 0);
  EXPECT_EQ(HistoryFile(path()).add("int a;"), "");
  EXPECT_THAT(HistoryFile(path()).load(), ElementsAre("theirs", "int a;"));
}
