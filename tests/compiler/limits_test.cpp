// What must not take the session along: endless work, crashes, a cell given up, one that is never settled.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

// Within the depth that clang allows, and twice as many types at each level.
const char* const kEndless =
    "template <class T, int N> struct P {};\n"
    "template <int N, class T> struct X { static constexpr int v = X<N - 1, P<T, 0>>::v + X<N - 1, P<T, 1>>::v; };\n"
    "template <class T> struct X<0, T> { static constexpr int v = 1; };\n"
    "int v = X<60, int>::v;";

TEST(Limits, EndlessTemplateIsGivenUp) {
  CellSession session;
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  const auto recursion =
      session.run("template <int N> struct Deep { static constexpr int v = Deep<N + 1>::v; };\nint deep = Deep<0>::v;");
  EXPECT_EQ(recursion.compiled.status, CompileStatus::error);
  EXPECT_NE(recursion.compiled.rendered.find("recursive template instantiation"), std::string::npos);
  protocol::Compile request;
  request.time_limit_s = 1;
  const auto slow = session.run(kEndless, request);
  EXPECT_EQ(slow.compiled.status, CompileStatus::timeout) << slow.compiled.rendered;
  EXPECT_NE(slow.compiled.rendered.find("took longer than 1 s"), std::string::npos);
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

TEST(Limits, WhatTakesTooMuchMemoryIsGivenUp) {
  CellSession session({.memory_limit_mb = 64});
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  const auto large = session.run(kEndless);
  EXPECT_EQ(large.compiled.status, CompileStatus::error);
  EXPECT_NE(large.compiled.rendered.find("took more than 64 MB of memory"), std::string::npos)
      << large.compiled.rendered;
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
  // A question meets the limit, too, and has no answer then.
  ASSERT_EQ(session.run(std::string(kEndless, std::string_view(kEndless).rfind("int v"))).text(), "");
  protocol::Inspect inspect;
  inspect.expression = "X<60, int>::v";
  session.ask(inspect);
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

// The memory limit fails the test, not the machine, should one of them have no end.
TEST(Limits, AMacroCallWithoutAnEndIsAnError) {
  CellSession session({.memory_limit_mb = 256});
  check_transcript(session, {
                                {"int x = 1;", ""},
                                {"TORCH_CHECK(1 == 1;", "error: unterminated function-like macro invocation"},
                                {"assert(x == 1;", "error: unterminated function-like macro invocation"},
                                {"struct S { int a; }; offsetof(S, a", "error: unterminated function-like macro"},
                                {"#define TWICE(x) x, x\nTWICE(TWICE(1)", "error: unterminated function-like macro"},
                                {"_Pragma(\"omp", "error: _Pragma takes a parenthesized string literal"},
                                {"_Pragma(", "error: _Pragma takes a parenthesized string literal"},
                                {"x", "=> 1\n"},
                            });
  session.ask(protocol::Complete{.text = "TORCH_CHECK(x", .offset = 13});
  session.ask(protocol::Complete{.text = "_Pragma(\"om", .offset = 11});
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

// Each of these ends in a crash on the 8 MB that a stack has.
TEST(Limits, WhatNestsDeeplyMeetsClangsLimitsAndNoCrash) {
  CellSession session;
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  for (const char* endless : {
           "template <int N> auto deep() { return deep<N + 1>(); }\ndeep<0>()",
           "template <class T> struct W { template <class U> static auto go(U u) { return W<W<T>>::go(u); } "
           "};\nW<int>::go(1)",
           "template <int N> constexpr int down() { return down<N - 1>() + down<N - 2>(); }\ndown<3>()",
       }) {
    SCOPED_TRACE(endless);
    const auto outcome = session.run(endless);
    EXPECT_EQ(outcome.compiled.status, CompileStatus::error);
    EXPECT_NE(outcome.compiled.rendered.find("recursive template instantiation exceeded"), std::string::npos)
        << outcome.compiled.rendered.substr(0, 400);
  }
  std::string text = "std::string s; s", output = "std::cout";
  for (int i = 0; i < 3000; ++i) text += ".append(\"a\")", output += " << 1";
  EXPECT_EQ(session.run(text + ".size()").text(), "=> 3000\n");
  EXPECT_EQ(session.run(output + ";").text(), std::string(3000, '1'));
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

/// The newest state and its two spares.
std::vector<pid_t> states_of(CellSession& session) {
  session.ask(protocol::ListNames{});  // what comes after an answer has been done then, too
  return session.states();
}

/// Kills a process and waits for its end.
void kill_and_wait(pid_t pid) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  ASSERT_GE(process, 0);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  pollfd end = {process, POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 10'000), 1);
  ::close(process);
}

TEST(Limits, AProcessThatIsKilledWhileItWaitsCostsNoCell) {
  CellSession session;
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  for (size_t which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    const auto states = states_of(session);
    ASSERT_EQ(states.size(), 3u);
    kill_and_wait(states[which]);
    EXPECT_EQ(session.run("x += 1; x").text(), "=> " + std::to_string(which + 2) + "\n");
  }
  // A moment before the cell comes, too.
  for (size_t which = 0; which < 3; ++which) {
    SCOPED_TRACE(which);
    const auto states = states_of(session);
    ASSERT_EQ(states.size(), 3u);
    ASSERT_EQ(::kill(states[which], SIGKILL), 0);
    EXPECT_EQ(session.run("int y = x + " + std::to_string(which) + "; y").text(),
              "=> " + std::to_string(which + 4) + "\n");
  }
  // With all of them its state is gone: the session sees that it ends, and starts it again.
  const auto all = states_of(session);
  for (const pid_t state : all) ASSERT_EQ(::kill(state, SIGSTOP), 0);  // so that none starts another
  for (const pid_t state : all) ASSERT_EQ(::kill(state, SIGKILL), 0);
  const auto last = session.receive().first;
  const auto* failed = std::get_if<protocol::CompilerFailed>(&last);
  ASSERT_TRUE(failed);
  EXPECT_NE(failed->message.find("has lost its state"), std::string::npos) << failed->message;
  EXPECT_EQ(session.compiler().wait(), 1);
}

TEST(Limits, ACrashOfTheCompilerIsContained) {
  CellSession session;
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  const auto crashed = session.run("#pragma clang __debug crash\n");
  EXPECT_EQ(crashed.compiled.status, CompileStatus::crash);
  EXPECT_NE(crashed.compiled.rendered.find("crashed on this cell"), std::string::npos) << crashed.compiled.rendered;
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

TEST(Limits, CancelEndsACompile) {
  CellSession session;
  protocol::Compile request;
  request.cell = 1;
  request.ranks = RankSet{0};
  request.text = kEndless;
  session.send(request);
  session.send(protocol::Cancel{1});
  const auto compiled = std::get<protocol::Compiled>(session.receive().first);
  EXPECT_EQ(compiled.status, CompileStatus::cancelled);
  session.send(protocol::Cancel{1});  // nothing is being compiled: no answer
  EXPECT_TRUE(std::holds_alternative<protocol::Names>(session.ask(protocol::ListNames{})));
  EXPECT_EQ(session.run("int v = 3; v").text(), "=> 3\n");
}

TEST(Limits, ACellThatIsNotSettledOrNotLoadedIsRolledBack) {
  CellSession session;
  ASSERT_EQ(session.run("int x = 1;").text(), "");
  EXPECT_EQ(session.compile("int x = 2; struct Ghost {};").compiled.status, CompileStatus::ok);
  EXPECT_EQ(session.compile("Ghost g;").compiled.status, CompileStatus::error);
  const auto unloadable = session.run("int undefined_elsewhere();\nint x = undefined_elsewhere();");
  EXPECT_NE(unloadable.problem.find("undefined_elsewhere"), std::string::npos);
  EXPECT_EQ(session.run("x").text(), "=> 1\n");
}

TEST(Limits, PollsEndLoopsButNotWhereNothingMayBeThrown) {
  CellSession session;
  ASSERT_EQ(session.run("int turns = 0;").text(), "");
  const auto interrupted = [&](const std::string& cell) {
    session.tell_host(0, {{"do", "interrupt"}});
    return session.run(cell).text();
  };
  EXPECT_EQ(interrupted("while (true) ++turns;"), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(session.run("turns").text(), "=> 2\n");
  EXPECT_EQ(interrupted("for (;;) {}"), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("do {} while (true);"), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("std::vector<int> many(1000); for (int& i : many) i = 1;"),
            "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("auto spin = [] { for (;;) {} }; spin();"), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("template <class T> void turn(T n) { for (T i = 0; i >= 0; i = 0) {} }\nturn(1);"),
            "! lockstep::Interrupted: interrupted\n");
  // Loops made of goto, in each statement that can hold a jump back.
  EXPECT_EQ(interrupted("{ again: ++turns; goto again; }"), "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(session.run("turns").text(), "=> 5\n");
  EXPECT_EQ(interrupted("void spin(int n) { again: if (n >= 0) goto again; else return; }\nspin(1);"),
            "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("void turn_round(int n) { first: switch (n) { case 1: goto first; default: { goto first; } } "
                        "}\nturn_round(2);"),
            "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("void jump() { void* to = &&here; here: goto *to; }\njump();"),
            "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(
      interrupted("template <class T> void back(T n) { T m = n; up: T k = m; m = k; if (k == n) goto up; }\nback(3);"),
      "! lockstep::Interrupted: interrupted\n");
  EXPECT_EQ(interrupted("int ahead() { int n = 0; for (int i = 0; n == 0; ) { n = 4; goto out; } out: return n; }\n1"),
            "=> 1\n");
  EXPECT_EQ(session.run("ahead()").text(), "=> 4\n");
  EXPECT_EQ(interrupted("int quiet_jump() noexcept { int n = 0; up: if (++n < 10) goto up; return n; }\nquiet_jump()"),
            "=> 10\n");
  // Neither in noexcept functions and destructors, nor at compile time.
  EXPECT_EQ(interrupted("int quiet() noexcept { int n = 0; for (int i = 0; i < 1000; ++i) ++n; return n; }\nquiet()"),
            "=> 1000\n");
  session.tell_host(0, {{"do", "interrupt"}});
  EXPECT_EQ(
      session.run("struct D { int* n; ~D() { for (int i = 0; i < 10; ++i) ++*n; } };\nint n = 0;\n{ D d{&n}; }\nn")
          .text(),
      "=> 10\n");
  EXPECT_EQ(interrupted("constexpr int sum(int n) { int s = 0; for (int i = 0; i < n; ++i) s += i; return s; "
                        "}\nconstexpr int ten = sum(5); ten"),
            "=> 10\n");
  EXPECT_EQ(session.run("std::array<int, sum(4)> sized; sized.size()").text(), "=> 6\n");
  // The body runs on the rank's own thread.
  EXPECT_EQ(interrupted("int total = 0;\nat::parallel_for(0, 100, 1000, [&](int64_t b, int64_t e) { for (int64_t i = "
                        "b; i < e; ++i) ++total; });\ntotal"),
            "! lockstep::Interrupted: interrupted\n");
}

}  // namespace
}  // namespace lockstep::compiler_test
