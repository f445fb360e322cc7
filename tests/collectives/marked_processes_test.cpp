#include "collectives/log/marked_processes.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace lockstep::dist {
namespace {

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  std::vector<char*> arguments, variables;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  arguments.push_back(nullptr);
  variables.push_back(nullptr);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), variables.data()), 0);
  return pid;
}

int signal_that_ended(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

std::string own_mark() { return "LOCKSTEP_TEST_MARK=" + std::to_string(getpid()); }

TEST(MarkedProcesses, OnlyThoseWithAllMarksEnd) {
  const std::vector<std::string> command = {"/bin/sleep", "1000"};
  const pid_t marked = start(command, {"A=1", own_mark(), "LOCKSTEP_RANK=1"});
  const pid_t without_rank = start(command, {own_mark()});
  const pid_t other_rank = start(command, {own_mark(), "LOCKSTEP_RANK=12"});
  const pid_t without_environment = start(command, {});
  EXPECT_EQ(end_marked_processes({own_mark(), "LOCKSTEP_RANK=1"}), 1);
  EXPECT_EQ(signal_that_ended(marked), SIGKILL);
  for (const pid_t pid : {without_rank, other_rank, without_environment}) {
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
    kill(pid, SIGTERM);
    EXPECT_EQ(signal_that_ended(pid), SIGTERM);
  }
}

// The kernel shows an empty environment during execve, in which this one is for much of its time.
TEST(MarkedProcesses, OneThatIsStartingAProgramEnds) {
  for (int round = 0; round < 40; ++round) {
    const pid_t pid = start({LOCKSTEP_EXECVE_LOOP}, {own_mark()});
    EXPECT_EQ(end_marked_processes({own_mark()}), 1);
    kill(pid, SIGTERM);
    EXPECT_EQ(signal_that_ended(pid), SIGKILL) << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::dist
