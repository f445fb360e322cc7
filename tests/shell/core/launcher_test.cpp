// Processes: started, watched, named when they end, never left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "shell/processes/launcher.h"
#include "shell/processes/limits.h"
#include "shell/processes/output_tail.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

Launch shell(const std::string& script) {
  Launch launch;
  launch.program = "/bin/sh";
  launch.arguments = {"-c", script};
  return launch;
}

TEST(Launcher, EndsHaveWords) {
  Child normal(shell("exit 3"));
  EXPECT_EQ(normal.wait().str(), "exited with code 3");
  Child killed(shell("kill -SEGV $$"));
  EXPECT_EQ(killed.wait().str(), "was killed by SIGSEGV");
  EXPECT_EQ(killed.wait().exit_code(), 128 + SIGSEGV);
}

/// How a shell ends that sends itself SIGHUP, while this process ignores that.
ProcessEnd end_of_hangup(bool is_kept) {
  Launch launch = shell("kill -HUP $$");
  launch.program = "sh";
  launch.as_in_shell = true;
  if (is_kept) launch.default_signals = {};
  const auto before = ::signal(SIGHUP, SIG_IGN);
  Child child(launch);
  ::signal(SIGHUP, before);
  EXPECT_EQ(::getpgid(child.pid()), ::getpgrp());
  return child.wait();
}

TEST(Launcher, AsInAShellItIsFoundInPathAndStaysInTheGroup) {
  EXPECT_EQ(end_of_hangup(/*is_kept=*/false).str(), "was killed by SIGHUP");
  EXPECT_EQ(end_of_hangup(/*is_kept=*/true).str(), "exited with code 0");
}

TEST(Launcher, AsInAShellItOutlivesItsChild) {
  Launch launch = shell("read line");
  launch.as_in_shell = true;
  Pipe input = make_pipe();
  launch.input = input.read.get();
  Descriptor process;
  {
    const Child child(launch);
    process = open_process(child.pid());
    input.read.reset();
  }
  EXPECT_FALSE(is_ready(process.get(), POLLIN));
  input.write.reset();
  EXPECT_TRUE(is_ready(process.get(), POLLIN, std::chrono::seconds(60)));
  siginfo_t end = {};
  ::waitid(P_PIDFD, static_cast<id_t>(process.get()), &end, WEXITED);
}

TEST(Launcher, OneStreamAloneIsTaken) {
  OutputTail tail;
  Launch launch = shell("echo out; echo err >&2");
  launch.output = tail.write_end();
  launch.outputs = {STDERR_FILENO};
  Child child(launch);
  tail.close_write_end();
  child.wait();
  EXPECT_EQ(tail.last_lines(10), "  err");
}

TEST(Launcher, AProgramThatDoesNotExistIsAnErrorAtOnce) {
  Launch launch;
  launch.program = "/nowhere/at-all";
  try {
    Child child(launch);
    ADD_FAILURE();
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/at-all"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
}

/// What require_threads() says in a process that may have `limit` processes and threads.
std::string shortage_of(rlim_t limit, int count) {
  Pipe said = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit set = {limit, limit};
    const uid_t user = ::geteuid() == 0 ? 65534 : ::geteuid();  // root has no limit
    if (::setrlimit(RLIMIT_NPROC, &set) != 0 || ::setresuid(user, user, user) != 0) ::_exit(1);
    std::string text = "enough";
    try {
      require_threads(count, "a session of 2 ranks");
    } catch (const StartError& error) {
      text = error.what();
    }
    (void)!::write(said.write.get(), text.data(), text.size());
    ::_exit(0);
  }
  said.write.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(said.read.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::waitpid(pid, nullptr, 0);
  return text;
}

TEST(ThreadLimit, IsNamedWithWhatRaisesIt) {
  const std::string text = shortage_of(1, 22);
  EXPECT_THAT(text, HasSubstr("a session of 2 ranks needs some 22 processes and threads, and 0 more can be started"));
  EXPECT_THAT(text, HasSubstr("this user may have 1 (ulimit -u)"));
  EXPECT_THAT(text, HasSubstr("ulimit -u 4096"));
  require_threads(22, "a session of 2 ranks");  // here there are enough
}

TEST(Launcher, Rule6EachLeadsItsOwnGroupAndTakesItAlong) {
  OutputTail tail;
  Launch launch = shell("sleep 1000 & echo $!; exec sleep 1000");
  launch.output = tail.write_end();
  pid_t grandchild = 0;
  {
    Child child(launch);
    tail.close_write_end();
    EXPECT_EQ(::getpgid(child.pid()), child.pid());
    pollfd poll_fd{tail.fd(), POLLIN, 0};
    ::poll(&poll_fd, 1, 10000);
    tail.take();
    grandchild = std::atoi(tail.last_lines(1).c_str());
    ASSERT_TRUE(dist::process_start_time(grandchild));
  }
  // It is init's to reap; the signal was sent before the destructor returned.
  pollfd closed{tail.fd(), POLLIN, 0};
  ::poll(&closed, 1, 10000);
  EXPECT_FALSE(tail.take()) << "somebody of the group still holds the pipe";
}

TEST(Launcher, AChildThatAnotherOneHasStartedIsWatchedAndEnded) {
  const auto start = [] {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::signal(SIGSEGV, SIG_DFL);  // a sanitizer has a handler of its own
      for (;;) ::pause();
    }
    return pid;
  };
  Child child(start());
  EXPECT_FALSE(child.ended());
  EXPECT_EQ(child.start_time(), dist::process_start_time(child.pid()));
  child.signal(SIGSEGV);
  EXPECT_EQ(child.wait().str(), "was killed by SIGSEGV");

  const pid_t other = start();
  const Descriptor process = open_process(other);
  {
    const Child ended_with_this(other);
  }
  EXPECT_TRUE(is_ready(process.get(), POLLIN));
}

TEST(Launcher, EnvironmentAndDescriptors) {
  OutputTail tail;
  const Pipe pipe = make_pipe();
  Launch launch = shell("echo $LOCKSTEP_TEST; test -e /proc/self/fd/" + std::to_string(pipe.read.get()) +
                        " && echo open; test -e /proc/self/fd/" + std::to_string(pipe.write.get()) + " || echo closed");
  launch.environment = {{"LOCKSTEP_TEST", "a b"}};
  launch.inherit = {pipe.read.get()};
  launch.output = tail.write_end();
  Child child(launch);
  tail.close_write_end();
  child.wait();
  EXPECT_EQ(tail.last_lines(10), "  a b\n  open\n  closed");
  EXPECT_EQ(tail.last_lines(2), "  open\n  closed");
}

TEST(Launcher, ProgramsAreLookedForWhereTheVariableSays) {
  ::setenv("LOCKSTEP_BIN", "/nowhere", 1);
  EXPECT_THROW(find_program("lockstep-worker"), StartError);
  ::setenv("LOCKSTEP_BIN", "/bin", 1);
  EXPECT_EQ(find_program("sh"), "/bin/sh");
  ::unsetenv("LOCKSTEP_BIN");
}

}  // namespace
}  // namespace lockstep::shell
