// What is found out about a process that has ended: where its core file is, by the kernel's pattern (core(5)), and whether
// the kernel had no memory for it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "shell/processes/deaths.h"

namespace lockstep::shell {
namespace {

const ProcessEnd kWithCore{.signal = SIGSEGV, .code = 0, .core = true};

TEST(CoreWords, NameTheFile) {
  EXPECT_EQ(core_words(kWithCore, 17, "/var/cores/core.%e.%p"), "; its core file is /var/cores/core.%e.17");
  EXPECT_EQ(core_words(kWithCore, 17, "a%%b-%p"), "; its core file is a%b-17 in its working directory");
}

TEST(CoreWords, NameTheProgramThatGotIt) {
  EXPECT_EQ(core_words(kWithCore, 17, "|/usr/lib/systemd/systemd-coredump %P %u"),
            "; its core went to /usr/lib/systemd/systemd-coredump: coredumpctl debug 17");
  EXPECT_EQ(core_words(kWithCore, 17, "|/usr/bin/collector"), "; its core went to /usr/bin/collector");
}

TEST(CoreWords, SayNothingWhereThereIsNone) {
  EXPECT_EQ(core_words({.signal = SIGKILL, .code = 0, .core = false}, 17, "core.%p"), "");
}

/// A folder with /proc and /sys of a test.
class KillsForMemory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
};

TEST_F(KillsForMemory, AreCountedOfTheControlGroup) {
  const std::string events = "sys/fs/cgroup/user.slice/memory.events";
  write("proc/self/cgroup", "1:name=systemd:/elsewhere\n0::/user.slice\n");
  write("proc/vmstat", "nr_free_pages 7\noom_kill 40\n");
  write(events, "low 0\noom 3\noom_kill 2\n");
  MemoryKillCounter counter(root_);
  EXPECT_FALSE(counter.rise());
  write("proc/vmstat", "nr_free_pages 7\noom_kill 41\n");  // of another group
  EXPECT_FALSE(counter.rise());
  write(events, "low 0\noom 4\noom_kill 3\n");
  const auto kills = counter.rise();
  ASSERT_TRUE(kills);
  EXPECT_FALSE(kills->of_machine);
  EXPECT_FALSE(counter.rise()) << "told once";
}

TEST_F(KillsForMemory, AreCountedOfTheMachineWhereTheGroupHasNoCounter) {
  write("proc/self/cgroup", "0::/\n");
  write("proc/vmstat", "oom_kill 1\n");
  MemoryKillCounter counter(root_);
  write("proc/vmstat", "oom_kill 2\n");
  const auto kills = counter.rise();
  ASSERT_TRUE(kills);
  EXPECT_TRUE(kills->of_machine);
}

TEST_F(KillsForMemory, AreNotKnownWithoutACounter) {
  MemoryKillCounter counter(root_);
  write("proc/vmstat", "oom_kill 2\n");
  EXPECT_FALSE(counter.rise());
}

}  // namespace
}  // namespace lockstep::shell
