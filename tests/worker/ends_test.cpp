// Rule 7: what a cell does to its process costs that rank only, and the rank says what it was before it goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::HasSubstr;

struct End {
  const char* cell;
  const char* type;
  const char* message;
  int line;
  int signal;
  int code;
};

void PrintTo(const End& end, std::ostream* stream) { *stream << end.cell; }

class Ends : public ::testing::TestWithParam<End> {};

TEST_P(Ends, AreToldWithCauseAndLine) {
  const auto& end = GetParam();
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("ends", end.cell);
  hub.run(cell);
  const auto dying = hub.expect<Dying>();
  EXPECT_EQ(dying.cell, cell);
  EXPECT_EQ(dying.error.type, end.type);
  EXPECT_THAT(dying.error.message, HasSubstr(end.message));
  EXPECT_EQ(dying.error.where, "cell 7, line " + std::to_string(end.line));
  EXPECT_FALSE(dying.error.stack.empty());
  const auto ended = hub.process().wait();
  EXPECT_EQ(ended.signal, end.signal);
  EXPECT_EQ(ended.code, end.code);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Ends,
    ::testing::Values(
        End{"say_then_crash", "SIGSEGV", "null pointer", 3, SIGSEGV, 0},
        End{"divide", "SIGFPE", "divided by zero", 5, SIGFPE, 0}, End{"illegal", "SIGILL", "instruction", 6, SIGILL, 0},
        End{"bus", "SIGBUS", "raised", 7, SIGBUS, 0}, End{"overflow", "SIGSEGV", "stack overflowed", 8, SIGSEGV, 0},
        End{"call_null", "SIGSEGV", "null pointer", 10, SIGSEGV, 0}, End{"aborts", "SIGABRT", "", 11, SIGABRT, 0},
        End{"terminates", "SIGABRT", "std::terminate", 12, SIGABRT, 0},
        End{"throws_in_noexcept", "SIGABRT", "std::runtime_error: boom", 13, SIGABRT, 0},
        End{"throws_in_thread", "SIGABRT", "std::runtime_error: bang", 14, SIGABRT, 0},
        End{"exits", "exit", "called exit(3)", 15, 0, 3}, End{"exits_quickly", "_exit", "called _exit(4)", 16, 0, 4},
        End{"quick_exits", "quick_exit", "called quick_exit(5)", 17, 0, 5},
        End{"crash_in_thread", "SIGSEGV", "null pointer", 19, SIGSEGV, 0}),
    [](const auto& info) { return std::string(info.param.cell); });

TEST(End, LosesNothingThatWasWrittenBefore) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("ends", "say_then_crash");
  hub.run(cell);
  hub.expect<Dying>();
  EXPECT_EQ(hub.output(cell), "last words");
}

TEST(End, ByExitRunsHandlersAndKeepsTheirOutput) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("ends", "exits_with_handler");
  hub.run(cell);
  hub.expect<Dying>();
  EXPECT_EQ(hub.process().wait().code, 0);
  EXPECT_TRUE(eventually([&] { return hub.output(cell) == "before handler ran"; })) << hub.output(cell);
}

TEST(End, RunsHandlersOfObjectsThatAreLinkedWithNothing) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("exit_handlers", "registers");
  hub.run(cell);
  EXPECT_EQ(hub.process().wait().code, 0);
  EXPECT_TRUE(eventually([&] { return hub.output(cell) == "0 0 handler ran"; })) << hub.output(cell);
}

TEST(End, ByPthreadExitIsToldToo) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("ends", "exits_thread");
  hub.run(cell);
  const auto dying = hub.expect<Dying>();
  EXPECT_THAT(dying.error.message, HasSubstr("pthread_exit"));
  EXPECT_EQ(dying.error.where, "cell 7, line 1") << "no frame of the cell is left; its step has to do";
  hub.process().wait();
}

}  // namespace
}  // namespace lockstep::testing
