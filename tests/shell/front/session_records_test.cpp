#include "shell/processes/session_records.h"
#include "collectives/log/process_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shell/processes/launcher.h"

using namespace lockstep::shell;
using testing::ElementsAre;
using testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

class SessionRecordsTest : public testing::Test {
 protected:
  SessionRecordsTest() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-records-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SessionRecordsTest() override { fs::remove_all(folder_); }

  void add(const std::string& id, const nlohmann::json& description, int cells = 0) const {
    fs::create_directories(folder_ / id / "cells");
    if (!description.is_null()) std::ofstream(folder_ / id / "session.json") << description;
    for (int i = 1; i <= cells; ++i)
      std::ofstream(folder_ / id / "cells" / ("cell_" + std::to_string(i) + ".cpp")) << "int a;\n";
  }
  static nlohmann::json description(pid_t pid, uint64_t start_time) {
    return {{"pid", pid},
            {"start_time", start_time},
            {"started", 1700000000},
            {"ranks", 2},
            {"backend", "gloo"},
            {"versions", {{"libtorch", "2.11.0"}, {"compiler", "clang 19.1.7"}}},
            {"workers", nlohmann::json::array()}};
  }
  static std::string own_id() { return std::to_string(::getpid()) + "-0a1b2c3d"; }

  fs::path folder_;
};

/// A process that waits to be killed.
std::unique_ptr<Child> sleeper() {
  Launch launch;
  launch.program = "/bin/sleep";
  launch.arguments = {"1000"};
  return std::make_unique<Child>(launch);
}

}  // namespace

TEST_F(SessionRecordsTest, ARunningSessionIsKnownByPidAndStartTime) {
  add(own_id(), description(::getpid(), *lockstep::dist::process_start_time(::getpid())), 12);
  const auto records = read_sessions({folder_});
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(records[0].is_alive);
  EXPECT_EQ(records[0].ranks, 2);
  EXPECT_EQ(records[0].libtorch, "2.11.0");
  EXPECT_EQ(records[0].cells.size(), 12u);
  EXPECT_EQ(records[0].cells.back(), 12);
  EXPECT_THAT(clean_sessions({folder_}).sessions, IsEmpty());
  EXPECT_TRUE(fs::exists(folder_ / own_id()));
}

TEST_F(SessionRecordsTest, AnotherProcessWithTheSamePidIsNotTheSession) {
  add(own_id(), description(::getpid(), *lockstep::dist::process_start_time(::getpid()) + 1));
  EXPECT_FALSE(read_sessions({folder_}).at(0).is_alive);
  EXPECT_THAT(clean_sessions({folder_}).sessions, ElementsAre(own_id()));
  EXPECT_FALSE(fs::exists(folder_ / own_id()));
}

TEST_F(SessionRecordsTest, DamagedAndMissingDescriptions) {
  add("999999999-aa", nullptr);
  add("999999998-bb", nlohmann::json::array({1, 2}));
  add("999999997-cc", {{"pid", "text"}, {"start_time", {}}, {"ranks", "two"}, {"workers", {1, nullptr, "x"}}});
  std::ofstream(folder_ / "999999997-cc" / "session.json", std::ios::app) << "{{{";
  EXPECT_EQ(read_sessions({folder_}).size(), 3u);
  EXPECT_EQ(clean_sessions({folder_}).sessions.size(), 3u);
}

TEST_F(SessionRecordsTest, OtherFoldersAreLeftAlone) {
  add("compilers", nullptr);
  add("12-xyz", nullptr);
  std::ofstream(folder_ / "999999999-aa") << "a file";
  const fs::path elsewhere = folder_ / "elsewhere";
  fs::create_directories(elsewhere / "deep");
  fs::create_directory_symlink(elsewhere, folder_ / "999999999-bb");
  EXPECT_THAT(read_sessions({folder_}), IsEmpty());
  EXPECT_THAT(clean_sessions({folder_}).sessions, IsEmpty());
  EXPECT_TRUE(fs::exists(elsewhere / "deep"));
}

TEST_F(SessionRecordsTest, WorkersThatOutlivedTheirShellAreEndedAndStrangersAreNot) {
  const auto worker = sleeper(), other = sleeper();
  nlohmann::json dead = description(999999999, 1);
  dead["workers"] = {{{"rank", 0}, {"pid", worker->pid()}, {"start_time", worker->start_time()}},
                     {{"rank", 1}, {"pid", other->pid()}, {"start_time", other->start_time() + 1}}};
  add("999999999-aa", dead);
  EXPECT_EQ(clean_sessions({folder_}).workers, 1);
  const auto end = worker->ended();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->signal, SIGKILL);
  EXPECT_FALSE(other->ended().has_value());
}

TEST_F(SessionRecordsTest, NoFolderNoSessions) { EXPECT_THAT(read_sessions({folder_ / "none"}), IsEmpty()); }
