// The folder of the precompiled header, with files that are built at once in place of it.
#include "compiler/process/shared_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "protocol/error.h"

namespace lockstep::compiler {
namespace {

namespace fs = std::filesystem;

class SharedFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "lockstep-shared-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
    path_ = top_ / "cache/pch/key";
    folder_ = {.path = path_,
               .what = "the header",
               .advice = "set SOMETHING",
               .space = 0,
               .steps = {{"first", [this](const fs::path& path) { write("first", path); }},
                         {"second", [this](const fs::path& path) { write("second", path); }}}};
  }
  void TearDown() override { fs::remove_all(top_); }

  void write(const std::string& name, const fs::path& path) {
    if (failing_ == name) throw StartError(name + " failed");
    std::ofstream(path) << name;
    if (killed_in_ == name) ::raise(SIGKILL);
    built_ += name + " ";
  }
  /// What was built, and what was said.
  std::string provide_folder() {
    built_.clear();
    said_.clear();
    steps_.clear();
    provide(folder_, "building", [this](const protocol::CompilerProgress& progress) {
      if (!progress.message.empty()) said_.push_back(progress.message);
      if (progress.step) steps_.push_back(*progress.step);
    });
    return built_;
  }
  std::string failure() {
    try {
      provide_folder();
    } catch (const StartError& error) {
      return error.what();
    }
    return "";
  }
  /// A builder that SIGKILL ends while it writes `file`.
  void be_killed_in(const std::string& file) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      killed_in_ = file;
      provide_folder();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  fs::path top_, path_;
  SharedFolder folder_;
  std::string failing_, killed_in_, built_;
  std::vector<std::string> said_;
  std::vector<protocol::StartStep> steps_;
};

TEST_F(SharedFolderTest, IsBuiltOnce) {
  EXPECT_FALSE(is_complete(path_));
  EXPECT_EQ(provide_folder(), "first second ");
  EXPECT_EQ(said_, std::vector<std::string>{"building"});
  EXPECT_TRUE(is_complete(path_));
  EXPECT_EQ(provide_folder(), "");
  EXPECT_TRUE(said_.empty());
  struct stat status = {};
  ASSERT_EQ(::stat((top_ / "cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(SharedFolderTest, ABuilderThatIsKilledLeavesWhatTheNextGoesOnFrom) {
  be_killed_in("second");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(provide_folder(), "second ");
  std::ifstream file(path_ / "second");
  std::string text;
  EXPECT_TRUE(std::getline(file, text) && text == "second");
}

TEST_F(SharedFolderTest, NothingHalfBuiltIsUsed) {
  be_killed_in("first");
  EXPECT_EQ(provide_folder(), "first second ");
}

TEST_F(SharedFolderTest, ABuildThatFailsLeavesNothing) {
  failing_ = "second";
  EXPECT_EQ(failure(), "second failed");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(fs::exists(path_.string() + ".draft"));
  failing_ = "";
  EXPECT_EQ(provide_folder(), "first second ");
}

TEST_F(SharedFolderTest, OnlyADamagedFolderIsDiscarded) {
  provide_folder();
  EXPECT_FALSE(discard_if_damaged(path_));
  EXPECT_TRUE(is_complete(path_));
  // The same size and time, another byte.
  const auto time = fs::last_write_time(path_ / "second");
  std::ofstream(path_ / "second") << "sec0nd";
  fs::last_write_time(path_ / "second", time);
  EXPECT_TRUE(is_complete(path_));
  EXPECT_TRUE(discard_if_damaged(path_));
  EXPECT_EQ(provide_folder(), "first second ");
}

TEST_F(SharedFolderTest, WhoWaitsForABuilderSaysSo) {
  fs::create_directories(path_.parent_path());
  int built[2], said[2];
  ASSERT_EQ(::pipe(built), 0);
  ASSERT_EQ(::pipe(said), 0);
  const pid_t builder = ::fork();
  if (builder == 0) {
    folder_.steps[0].build = [&](const fs::path& path) {
      (void)!::write(built[1], "x", 1);  // the lock is held
      char byte;
      (void)!::read(said[0], &byte, 1);  // until the other one has said that it waits
      std::ofstream(path) << "first";
    };
    provide_folder();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(built[0], &byte, 1), 1);
  std::vector<std::string> texts;
  provide(folder_, "building", [&](const protocol::CompilerProgress& progress) {
    texts.push_back(progress.message);
    (void)!::write(said[1], "x", 1);
  });
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0], "waiting for another session (process " + std::to_string(builder) + "), which builds the header");
  EXPECT_EQ(built_, "");
  ::waitpid(builder, nullptr, 0);
  for (const int fd : {built[0], built[1], said[0], said[1]}) ::close(fd);
}

TEST_F(SharedFolderTest, TheStepsOfABuildAreReportedWithTheTimesOfTheLastOne) {
  folder_.steps[0].what = "the first file";
  provide_folder();
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_EQ(steps_[0].what, "the first file");
  EXPECT_EQ(steps_[0].number, 1);
  EXPECT_EQ(steps_[1].number, 2);
  EXPECT_EQ(steps_[1].count, 2);
  EXPECT_FALSE(steps_[0].last_s) << "nothing is known before the first build";
  const fs::path times = path_.parent_path() / "last-build";
  std::string machine;
  std::getline(std::ifstream(times) >> std::ws, machine);
  std::ofstream(times) << machine << "\n20.5 first\n4 second\n";
  fs::remove_all(path_);
  provide_folder();
  EXPECT_EQ(steps_.at(0).last_s, 24.5);
  EXPECT_EQ(steps_.at(1).last_s, 4);
  std::ofstream(times) << "another machine\n20.5 first\n4 second\n";
  fs::remove_all(path_);
  provide_folder();
  EXPECT_FALSE(steps_.at(0).last_s);
  std::ofstream(times) << machine << "\nno number\n";
  fs::remove_all(path_);
  provide_folder();
  EXPECT_FALSE(steps_.at(0).last_s);
}

TEST_F(SharedFolderTest, ACopyInAnImageOfAContainerIsComplete) {
  provide_folder();
  for (const char* file : {"first", "second"}) {  // images keep times in seconds
    const auto time = fs::last_write_time(path_ / file);
    fs::last_write_time(path_ / file, std::chrono::floor<std::chrono::seconds>(time));
  }
  EXPECT_TRUE(is_complete(path_));
}

TEST_F(SharedFolderTest, WhatAnotherUserCouldHaveWrittenIsRefused) {
  provide_folder();
  const fs::path file = path_ / "second";
  ::chmod(file.c_str(), 0666);
  EXPECT_NE(failure().find("can be written by all users"), std::string::npos) << failure();
  EXPECT_NE(failure().find("set SOMETHING"), std::string::npos);
  ::chmod(file.c_str(), 0600);
  ::chmod(path_.parent_path().c_str(), 0777);
  EXPECT_NE(failure().find("can't be trusted"), std::string::npos);
  ::chmod(path_.parent_path().c_str(), 0700);
  EXPECT_EQ(failure(), "");
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown(file.c_str(), 54321, 0), 0);
  EXPECT_NE(failure().find("belongs to user 54321"), std::string::npos);
}

TEST_F(SharedFolderTest, DraftsThatNobodyWorksAtAreRemoved) {
  provide_folder();
  const fs::path other = path_.parent_path() / "other", locked = path_.parent_path() / "locked";
  fs::create_directories(other.string() + ".draft");
  fs::create_directories(locked.string() + ".draft");
  const int lock = ::open((locked.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  fs::remove_all(path_);
  EXPECT_EQ(provide_folder(), "first second ");
  EXPECT_FALSE(fs::exists(other.string() + ".draft"));
  EXPECT_TRUE(fs::exists(locked.string() + ".draft"));
  ::close(lock);
}

}  // namespace
}  // namespace lockstep::compiler
