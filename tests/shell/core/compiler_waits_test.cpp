// The waits for the compiler, whose process may have been stopped or killed: each ends by Ctrl-C, SIGTERM and a limit
// (the table in docs/waits.md), what went wrong is reported once, and the next cell has a compiler that knows all
// names.
#include <signal.h>

#include "protocol/error.h"
#include "session_fixture.h"
#include "shell/session/completion.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;
using testing::Not;

class CompilerWaits : public SessionTest {
 protected:
  static pid_t compiler() { return children().front(); }
  /// Calls `act` on a thread once the compiler has been stopped.
  template <typename F>
  std::thread once_stopped(F act) {
    return std::thread([act, pid = compiler()] {
      while (process_state(pid) != 'T') std::this_thread::yield();
      act();
    });
  }
  void expect_names(std::vector<std::string> names) {
    // The fake's names are the texts of its cells.
    EXPECT_EQ(run("%who").status, CellStatus::ok);
    for (const auto& name : names) EXPECT_THAT(recorder_.all<MessageEvent>().back().text, HasSubstr(name));
  }
};

TEST_F(CompilerWaits, ACompileOfAStoppedCompilerEndsByAnInterrupt) {
  auto& session = start(2);
  run("print a");
  std::thread later = once_stopped([&] { session.interrupt(); });
  EXPECT_EQ(run("stop").status, CellStatus::interrupted);
  later.join();
  EXPECT_EQ(run("print b").status, CellStatus::ok);
  expect_names({"print a", "print b"});
}

TEST_F(CompilerWaits, ACompileOfAStoppedCompilerEndsByATerminationSignal) {
  auto& session = start(2);
  std::thread later = once_stopped([&] { session.leave(SIGTERM); });
  EXPECT_EQ(run("stop").status, CellStatus::interrupted);
  later.join();
}

// The compiler's own limit is kept by the process that has been stopped. A text of that size does not fit into the
// channel either.
TEST_F(CompilerWaits, ACompileOfAStoppedCompilerEndsByTheLimit) {
  SessionOptions options;
  options.compile_timeout_s = 0.1;
  start(2, options);
  run("print a");
  // An answer to a question: the compiler has heard how the cell before ended, and the next request is the compile.
  (void)complete_cell(*session_, "pri", 3);
  ::kill(compiler(), SIGSTOP);
  const auto outcome = run("print b\n" + std::string(2 << 20, ' '));
  EXPECT_EQ(outcome.status, CellStatus::timeout);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].type, "timeout");
  EXPECT_THAT(errors[0].message, HasSubstr("did not answer within"));
  EXPECT_EQ(run("print c").status, CellStatus::ok);
  expect_names({"print a", "print c"});
}

TEST_F(CompilerWaits, AQuestionToAStoppedCompilerIsGivenUp) {
  auto& session = start(2);
  ::kill(compiler(), SIGSTOP);
  session.give_up_question();  // from a signal handler, before the loop waits
  EXPECT_THROW((void)complete_cell(session, "pri", 3), ChannelError);
  EXPECT_EQ(completeness_of_cell(session, "int a;").status, TextStatus::complete) << "the shell answers by itself";
  ::kill(compiler(), SIGCONT);
  EXPECT_EQ(complete_cell(session, "pri", 3).completions.size(), 2u) << "the same compiler: a question changes nothing";
  EXPECT_EQ(run("print a").status, CellStatus::ok);
}

TEST_F(CompilerWaits, AStartAfterADeathEndsByAnInterrupt) {
  start(2);
  run("print a");
  ::kill(compiler(), SIGKILL);
  ::setenv("FAKE_COMPILER", "wait", 1);
  interrupt_on<MessageEvent>();  // "is started again"
  EXPECT_EQ(run("print b").status, CellStatus::interrupted);
  recorder_.also = nullptr;
  ::unsetenv("FAKE_COMPILER");
  EXPECT_EQ(run("print c").status, CellStatus::ok);
  expect_names({"print a", "print c"});
}

TEST_F(CompilerWaits, ARankThatDiesWhileACellCompiles) {
  start(2);
  const auto outcome = run("end " + std::to_string(children().back()) + "\nprint x\n");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  EXPECT_EQ(recorder_.bytes(0), "") << "what one of its ranks can't load, none runs";
  EXPECT_EQ(recorder_.all<ErrorEvent>().size(), 1u);
  EXPECT_EQ(recorder_.all<RankEvent>().size(), 1u);
  EXPECT_EQ(recorder_.all<CellEvent>().at(0).rank_status.at(1), CellStatus::dead);
  EXPECT_EQ(run("print y").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, RankSet{0});
}

TEST_F(CompilerWaits, ADeathGivesUpTheCompile) {
  start(2);
  EXPECT_EQ(run("end " + std::to_string(children().back()) + "\nslow\n").status, CellStatus::dead);
  EXPECT_EQ(run("print y").status, CellStatus::ok);
}

TEST_F(CompilerWaits, ATimeoutIsToldOnce) {
  start(2);
  EXPECT_EQ(run("late").status, CellStatus::timeout);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0].message, HasSubstr("--compile-timeout"));
  EXPECT_THAT(errors[0].message, Not(HasSubstr("took longer")));
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty());
}

TEST_F(CompilerWaits, ACrashOfACompileIsToldOnce) {
  start(2);
  EXPECT_EQ(run("crash_child").status, CellStatus::compile_error);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].message, "error: the compiler crashed on this cell (Segmentation fault)\n");
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty());
}

TEST_F(CompilerWaits, TheCompilersDeathIsToldOnce) {
  start(2);
  EXPECT_EQ(run("crash").status, CellStatus::compile_error);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0].message, HasSubstr("SIGKILL"));
  for (const auto& message : recorder_.all<MessageEvent>()) EXPECT_THAT(message.text, Not(HasSubstr("SIGKILL")));
}

}  // namespace
}  // namespace lockstep::shell
