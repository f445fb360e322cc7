// Every wait of a session has a way out: a death, Ctrl-C, SIGTERM, a limit (the table in docs/waits.md). A test of a
// wait without one does not end. The waits for the compiler are in compiler_waits_test.cpp.
#include <signal.h>

#include "protocol/error.h"
#include "session_fixture.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

class Waits : public SessionTest {
 protected:
  /// A cell whose last rank is stopped before it has loaded it; the others say so, "here".
  std::string loads_for_ever() const {
    return "halt " + std::to_string(children().back()) + "\nloading here\nprint x\n";
  }
  void go_on() const { ::kill(children().back(), SIGCONT); }
  void leave_on_output() {
    recorder_.also = [this](const Event& event) {
      if (std::holds_alternative<OutputEvent>(event)) session_->leave(SIGTERM);
    };
  }
};

/// Calls `stopped` on a thread once a child of this process has been stopped.
class OnStop {
 public:
  explicit OnStop(std::function<void()> stopped)
      : thread_([stopped = std::move(stopped)] {
          for (;;) {
            for (const pid_t pid : children())
              if (process_state(pid) == 'T') return stopped();
            std::this_thread::yield();
          }
        }) {}
  ~OnStop() { thread_.join(); }

 private:
  std::thread thread_;
};

TEST_F(Waits, AStartEndsByAnInterrupt) {
  ::setenv("FAKE_WORKER", "stop", 1);
  Session session({.num_processes = 2, .gpu_ids = {}, .include_dirs = {}, .arguments = {}}, recorder_);
  const OnStop then([&] { session.interrupt(); });
  EXPECT_THROW(session.start(), StartError);
}

TEST_F(Waits, AStartEndsByATerminationSignal) {
  ::setenv("FAKE_WORKER", "stop", 1);
  Session session({.num_processes = 2, .gpu_ids = {}, .include_dirs = {}, .arguments = {}}, recorder_);
  const OnStop then([&] { session.leave(SIGTERM); });
  EXPECT_THROW(session.start(), StartError);
}

TEST_F(Waits, LoadingEndsByADeath) {
  start(2);
  EXPECT_EQ(run("print x\nrank 1 die_loading\n").status, CellStatus::dead);
  EXPECT_EQ(recorder_.bytes(0), "");
  EXPECT_EQ(recorder_.all<ErrorEvent>().size(), 1u);
  EXPECT_EQ(run("print y").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(0), "y\n");
}

TEST_F(Waits, LoadingEndsByADeathOfARankThatHasLoaded) {
  start(2);
  const pid_t loaded = children().at(children().size() - 2);
  recorder_.also = [&](const Event& event) {
    const auto* message = std::get_if<MessageEvent>(&event);
    if (message && message->text.find("rank 1 has not loaded the cell yet") != std::string::npos)
      ::kill(loaded, SIGKILL);
    const auto* rank = std::get_if<RankEvent>(&event);
    if (rank && rank->state == RankState::dead) go_on();
  };
  EXPECT_EQ(run(loads_for_ever()).status, CellStatus::dead);
  recorder_.also = nullptr;
  EXPECT_EQ(run("print y").status, CellStatus::ok);
  EXPECT_THAT(recorder_.bytes(1), testing::Not(HasSubstr("x\n"))) << "what one of its ranks can't run, none runs";
}

TEST_F(Waits, LoadingEndsByAnInterrupt) {
  start(2);
  interrupt_on<OutputEvent>();
  EXPECT_EQ(run(loads_for_ever()).status, CellStatus::interrupted);
  recorder_.also = nullptr;
  go_on();
  EXPECT_EQ(run("print y").status, CellStatus::ok) << "the rank that was late has dropped the cell";
  EXPECT_EQ(recorder_.bytes(0), "y\n");
  EXPECT_THAT(recorder_.bytes(1), testing::EndsWith("y\n"));
}

TEST_F(Waits, LoadingEndsByATerminationSignal) {
  start(2);
  leave_on_output();
  EXPECT_EQ(run(loads_for_ever()).status, CellStatus::interrupted);
  go_on();
  recorder_.also = nullptr;
  EXPECT_EQ(run("print y").status, CellStatus::interrupted) << "nothing is begun any more";
  EXPECT_EQ(recorder_.bytes(0), "");
}

TEST_F(Waits, LoadingEndsByALimit) {
  SessionOptions options;
  options.cell_timeout_s = 0.1;
  start(2, options);
  EXPECT_EQ(run(loads_for_ever()).status, CellStatus::timeout);
  const auto error = recorder_.all<ErrorEvent>().at(0);
  EXPECT_EQ(error.type, "timeout");
  EXPECT_EQ(error.ranks, RankSet{1});
  EXPECT_THAT(error.message, HasSubstr("was not loaded within"));
  go_on();
}

TEST_F(Waits, LoadingEndsByTheLimitOfHangs) {
  SessionOptions options;
  options.hang_timeout_s = 0.1;
  start(2, options);
  EXPECT_EQ(run(loads_for_ever()).status, CellStatus::timeout);
  go_on();
}

TEST_F(Waits, ConnectingAgainEndsByADeath) {
  start(3);
  run("rank 1 die_regrouping\nrank 0 collective");
  const auto outcome = run("print x");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  EXPECT_EQ(recorder_.bytes(0), "");
  EXPECT_EQ(run("print y").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 2}));
}

TEST_F(Waits, ConnectingAgainBeginsAnewWithoutARankThatHasDied) {
  start(3);
  run("rank 1 die_regrouping\nrank 2 slow_regroup\nrank 0 collective");
  EXPECT_EQ(run("print x").status, CellStatus::dead);
  for (const MessageEvent& each : recorder_.all<MessageEvent>())
    EXPECT_THAT(each.text, testing::Not(HasSubstr("could not connect")));
  EXPECT_EQ(run("print y").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 2}));
}

TEST_F(Waits, ACellEndsByATerminationSignal) {
  start(2);
  leave_on_output();
  EXPECT_EQ(run("print in\nrank 1 stubborn\n").status, CellStatus::dead);
}

TEST_F(Waits, AQuestionToAStoppedRankEnds) {
  start(2);
  ::kill(children().back(), SIGSTOP);
  EXPECT_EQ(run("%dist_status").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("no answer"));
}

TEST_F(Waits, ARankThatComesBackDoesNotWaitForAStoppedProcessThatMakesCopies) {
  start(2);
  ::kill(starter(), SIGSTOP);
  run("rank 1 kill 9");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("copies of gave no answer, and was killed"));
  EXPECT_FALSE(is_copy(children().back()));
}

TEST_F(Waits, TheEndOfASessionDoesNotWaitForAStoppedRank) {
  start(2);
  ::kill(children().back(), SIGSTOP);
  session_.reset();
  EXPECT_TRUE(children().empty());
}

TEST_F(Waits, AMagicThatWaitsForTheRanksOfACellEnds) {
  start(2);
  EXPECT_EQ(run("rank 0 join").status, CellStatus::waiting);
  ::kill(children()[3], SIGSTOP);
  EXPECT_EQ(run("%interrupt").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("did not come back"));
}

TEST_F(Waits, BusyRanksAreInterruptedAtThePrompt) {
  auto& session = start(2);
  EXPECT_FALSE(session.interrupt_busy_ranks());
  EXPECT_EQ(run("rank 0 join").status, CellStatus::waiting);
  EXPECT_TRUE(session.interrupt_busy_ranks());
  EXPECT_EQ(recorder_.all<CellEvent>().size(), 1u) << "the cell that was left open is over";
  EXPECT_EQ(run("print x").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 1}));
}

}  // namespace
}  // namespace lockstep::shell
