// What a session tells of ranks that die: at once, once, and what can be done next.
#include <signal.h>

#include "protocol/error.h"
#include "session_fixture.h"
#include "shell/processes/launcher.h"
#include "shell/session/outcome.h"

namespace lockstep::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Deaths : public SessionTest {
 protected:
  /// Ends the last rank and serves until a message says what comes next.
  void end_last_rank() { end(children().back()); }
  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    Pipe reported = make_pipe();
    recorder_.also = [&](const Event& event) {
      if (std::holds_alternative<MessageEvent>(event)) reported.write.reset();
    };
    session_->serve(reported.read.get(), std::chrono::minutes(1));
    recorder_.also = nullptr;
  }
  /// Chooses what the next worker does. It is no copy: those have the environment of the session's start.
  void start_again_as(const char* how) {
    end(starter());
    ::setenv("FAKE_WORKER", how, 1);
  }
  /// Runs a magic that starts a worker, which is stopped as it starts, and interrupts the session then.
  CellStatus interrupted_as_it_starts(const std::string& magic) {
    start_again_as("stop");
    const std::jthread person([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (process_state(children().back()) == 'T') return session_->interrupt();
        std::this_thread::yield();
      }
    });
    const CellStatus status = run(magic).status;
    ::unsetenv("FAKE_WORKER");
    return status;
  }
};

TEST_F(Deaths, ADeathWhileIdleIsToldWithWhatCanBeDone) {
  start(3);
  end_last_rank();
  const auto states = recorder_.all<RankEvent>();
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].state, RankState::dead);
  EXPECT_EQ(states[0].rank, 2);
  EXPECT_EQ(recorder_.all<ErrorEvent>().size(), 1u);
  const auto messages = recorder_.all<MessageEvent>();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0].text, HasSubstr("Cells run on ranks 0-1 from now on"));
  EXPECT_THAT(messages[0].text, HasSubstr("%dist_reset"));
  EXPECT_EQ(session_->target_words(), "ranks 0-1");
}

TEST_F(Deaths, TheLastDeathSaysThatNoneIsLeft) {
  start(1);
  end_last_rank();
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("no rank is left: %restart starts them again"));
  EXPECT_EQ(session_->target_words(), "all ranks dead");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_EQ(session_->target_words(), "rank 0");
}

TEST_F(Deaths, ADeathInACellIsFollowedByWhatCanBeDone) {
  start(2);
  run("rank 1 kill 9");
  ASSERT_EQ(recorder_.all<MessageEvent>().size(), 1u);
  EXPECT_THAT(recorder_.all<MessageEvent>()[0].text, HasSubstr("what rank 1 held is lost"));
  EXPECT_TRUE(std::holds_alternative<MessageEvent>(recorder_.events.back())) << "behind the end of the cell";
  run("print x");
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty()) << "once";
}

TEST_F(Deaths, RunGivesNoAdvice) {
  SessionOptions options;
  options.abort_hangs = true;
  start(2, options);
  run("rank 1 kill 9");
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty());
}

TEST_F(Deaths, ARankComesBackInItsPlace) {
  start(3);
  run("print a");
  run("rank 1 kill 9");
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("%restart 1 --from 0"));
  EXPECT_EQ(run("%restart 1").status, CellStatus::ok);
  ASSERT_EQ(recorder_.all<MessageEvent>().size(), 1u);
  EXPECT_THAT(recorder_.all<MessageEvent>()[0].text, HasSubstr("rank 1 is back"));
  EXPECT_TRUE(recorder_.all<OutputEvent>().empty()) << "what ran again has been seen";
  EXPECT_EQ(session_->target_words(), "ranks 0-2");
  run("print b");
  ASSERT_EQ(recorder_.all<OutputEvent>().size(), 1u);
  EXPECT_EQ(recorder_.all<OutputEvent>()[0].ranks, RankSet::all(3));
}

TEST_F(Deaths, TheOthersGoOnAsTheDefaultGroup) {
  start(4);
  EXPECT_EQ(run("%dist_continue").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).text, "ranks 0-3 are the default group of 4 now");
  run("rank 1 kill 9");
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text,
              HasSubstr("%dist_continue goes on without it: ranks 0,2-3 are then the default group"));
  EXPECT_EQ(run("%dist_continue").status, CellStatus::ok);
  ASSERT_EQ(recorder_.all<MessageEvent>().size(), 1u);
  EXPECT_EQ(
      recorder_.all<MessageEvent>()[0].text,
      "ranks 0,2-3 are the default group of 3 now. In cells they count from 0: rank 2 is 1, rank 3 is 2; here they "
      "keep their numbers");
  EXPECT_EQ(session_->target_words(), "ranks 0,2-3");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_EQ(run("%dist_continue").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).text, "ranks 0-3 are the default group of 4 now");
}

TEST_F(Deaths, DistInitChangesTheNumberOfRanks) {
  start(4);
  run("print a");
  EXPECT_EQ(run("%dist_init -n 2").status, CellStatus::ok);
  auto messages = recorder_.all<MessageEvent>();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].text, "ranks 2-3 have ended, the others keep what they hold");
  EXPECT_EQ(messages[1].text, "ranks 0-1 are the default group of 2 now");
  EXPECT_TRUE(recorder_.all<ErrorEvent>().empty());
  EXPECT_EQ(session_->target_words(), "ranks 0-1");
  EXPECT_EQ(run("print b").status, CellStatus::ok);
  EXPECT_EQ(run("%dist_init -n 3").status, CellStatus::ok);
  messages = recorder_.all<MessageEvent>();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0].text, HasSubstr("rank 2 is back: 1 cell ran again"));
  EXPECT_EQ(session_->target_words(), "ranks 0-2");
}

TEST_F(Deaths, DistInitAddsRanks) {
  start(2);
  run("print a");
  run("%%rank 0\nprint b");
  EXPECT_EQ(run("%dist_init -n 4").status, CellStatus::ok);
  const auto messages = recorder_.all<MessageEvent>();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0].text, HasSubstr("rank 2 is new: 1 cell ran again"));
  EXPECT_THAT(messages[0].text, HasSubstr("ran without it: cell 2\nrank 3 is new: 1 cell ran again"));
  const auto sessions = recorder_.all<SessionEvent>();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_TRUE(sessions[0].has_grown);
  EXPECT_EQ(sessions[0].ranks, RankSet::all(4));
  EXPECT_EQ(sessions[0].devices.size(), 4u);
  run("print c");
  ASSERT_EQ(recorder_.all<OutputEvent>().size(), 1u);
  EXPECT_EQ(recorder_.all<OutputEvent>()[0].ranks, RankSet::all(4));
  run("rank 3 kill 9");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("rank 3 is back: 2 cells ran again"));
  EXPECT_EQ(run("%dist_init -n 4").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("4 ranks are running already"));
  EXPECT_EQ(run("%dist_reset").status, CellStatus::ok);
  EXPECT_EQ(session_->target_words(), "ranks 0-3") << "all of them start afresh";
}

TEST_F(Deaths, ANewRankThatDiesAsItStartsCostsNoOther) {
  start(1);
  run("print a");
  start_again_as("die");
  EXPECT_EQ(run("%dist_init -n 3").status, CellStatus::error);
  ::unsetenv("FAKE_WORKER");
  EXPECT_THAT(recorder_.all<ErrorEvent>().back().message,
              AllOf(HasSubstr("rank 1 could not start: "), HasSubstr("libtorch_cpu.so: no such file"),
                    HasSubstr("cells run on rank 0; %dist_init -n 3 starts what is missing")));
  for (const auto& message : recorder_.all<MessageEvent>()) EXPECT_THAT(message.text, Not(HasSubstr("is lost")));
  EXPECT_EQ(run("print b").status, CellStatus::ok);
  run("%dist_status");
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, testing::ContainsRegex("2 +dead +- "));
  EXPECT_EQ(run("%dist_init -n 3").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("rank 1 is new: 2 cells ran again"));
  EXPECT_EQ(session_->target_words(), "ranks 0-2");
}

TEST_F(Deaths, AddingRanksCanBeInterrupted) {
  start(1);
  EXPECT_EQ(interrupted_as_it_starts("%dist_init -n 2"), CellStatus::interrupted);
  EXPECT_EQ(recorder_.all<MessageEvent>().back().text, "cells run on rank 0; %dist_init -n 2 starts what is missing");
  EXPECT_EQ(run("print b").status, CellStatus::ok);
  EXPECT_EQ(run("%dist_init -n 2").status, CellStatus::ok);
}

TEST_F(Deaths, WhatAStartRefusesIsRefusedToARunningSession) {
  start(2);
  EXPECT_EQ(run("%dist_init -n 0").status, CellStatus::usage_error);
  EXPECT_EQ(run("%dist_init -n 9000000000").status, CellStatus::usage_error);
  EXPECT_EQ(run("%dist_init -n 3 --from 2").status, CellStatus::usage_error);
  EXPECT_EQ(run("%dist_init -n 2 --from 0").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("--from copies to ranks that start"));
  EXPECT_EQ(session_->world_size(), 2);
}

TEST_F(Deaths, DistInitTakesLostRanksInAgain) {
  start(4);
  run("rank 1 kill 9\nrank 3 kill 9");
  EXPECT_EQ(run("%dist_init -n 3").status, CellStatus::ok);
  EXPECT_EQ(session_->target_words(), "ranks 0-2");
  EXPECT_EQ(recorder_.all<MessageEvent>().back().text, "ranks 0-2 are the default group of 3 now");
}

TEST_F(Deaths, NobodyGoesOnWhereNoRankIsLeft) {
  start(1);
  end_last_rank();
  EXPECT_EQ(run("%dist_continue").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("no rank is left"));
}

TEST_F(Deaths, OnlyDeadRanksComeBack) {
  start(2);
  EXPECT_EQ(run("%restart").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("no rank is dead"));
  EXPECT_EQ(run("%restart 1").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("rank 1 lives"));
  run("rank 1 kill 9");
  EXPECT_EQ(run("%restart 1 --from 1").status, CellStatus::usage_error);
  EXPECT_EQ(session_->target_words(), "rank 0");
}

TEST_F(Deaths, ARankThatCanNotStartAgainDoesNotHideTheOthers) {
  start(3);
  run("print a");
  run("rank 0 kill 9\nrank 1 kill 9");
  start_again_as("die");
  EXPECT_EQ(run("%restart --from 2").status, CellStatus::error);
  ::unsetenv("FAKE_WORKER");
  std::string said;
  for (const auto& message : recorder_.all<MessageEvent>()) said += message.text + "\n";
  EXPECT_THAT(said, HasSubstr("rank 0 is back"));
  EXPECT_THAT(said, HasSubstr("the model was not copied to rank 0: ddp::restore(MODEL, OPTIMIZER, 2)"));
  ASSERT_FALSE(recorder_.all<ErrorEvent>().empty());
  EXPECT_THAT(recorder_.all<ErrorEvent>().back().message, HasSubstr("libtorch_cpu.so: no such file"));
  EXPECT_EQ(session_->target_words(), "ranks 0,2");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_EQ(session_->target_words(), "ranks 0-2");
}

TEST_F(Deaths, ARankComesBackAsACopy) {
  start(2);
  run("rank 1 kill 9");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_TRUE(is_copy(children().back()));
}

TEST_F(Deaths, RanksOutliveTheProcessThatTheyAreCopiesOf) {
  start(3);
  end(starter());
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text,
              HasSubstr("the process that ranks are copies of was killed by SIGKILL: a rank that starts from now on"));
  EXPECT_EQ(run("print hello").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(2), "hello\n");
  run("rank 1 kill 9");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
  EXPECT_FALSE(is_copy(children().back()));
}

TEST_F(Deaths, ARankOfAnotherBuildDoesNotComeBack) {
  start(2);
  run("rank 1 kill 9");
  start_again_as("old");
  EXPECT_EQ(run("%restart").status, CellStatus::error);
  ::unsetenv("FAKE_WORKER");
  EXPECT_THAT(recorder_.all<ErrorEvent>().back().message,
              HasSubstr("rank 1 could not start: the worker of rank 1 is of LibTorch 2.15.0"));
  EXPECT_EQ(session_->target_words(), "rank 0");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
}

TEST_F(Deaths, AStartAgainCanBeInterrupted) {
  start(2);
  run("rank 1 kill 9");
  EXPECT_EQ(interrupted_as_it_starts("%restart"), CellStatus::interrupted);
  const auto error = recorder_.all<ErrorEvent>().back();
  EXPECT_EQ(error.type, "session_error") << "no signal that came from elsewhere";
  EXPECT_THAT(error.message, HasSubstr("the session ended it: it was not back at the interrupt"));
  EXPECT_EQ(session_->target_words(), "rank 0");
  EXPECT_EQ(run("%restart").status, CellStatus::ok);
}

TEST_F(Deaths, AStartAgainEndsWithTheStore) {
  start(2);
  run("rank 1 kill 9");
  const pid_t store = children().at(2);
  start_again_as("stop");
  {
    const std::jthread harm([store](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (process_state(children().back()) == 'T') return (void)::kill(store, SIGKILL);
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(run("%restart").status, CellStatus::error);
  }
  ::unsetenv("FAKE_WORKER");
  const auto error = recorder_.all<ErrorEvent>().back();
  EXPECT_EQ(error.type, "session_error");
  EXPECT_THAT(error.message, HasSubstr("the session ended it: without the store it can't come back"));
}

TEST_F(Deaths, ACellThatRunsAgainHasTheLimitOfCells) {
  SessionOptions options;
  options.cell_timeout_s = 0.5;
  start(2, options);
  run("rank 1 stubborn_again");
  run("rank 1 kill 9");
  EXPECT_EQ(run("%restart").status, CellStatus::error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().back().message, HasSubstr("cell 1 took longer than 0.5 s as it ran again"));
  EXPECT_EQ(recorder_.all<RankEvent>().back().message,
            "the session ended it, since it could not start as cell 1 ran again");
  EXPECT_EQ(session_->target_words(), "rank 0");
}

TEST_F(Deaths, TheModelIsNotCopiedWhileAnotherRankIsDead) {
  start(4);
  run("rank 1 kill 9\nrank 3 kill 9");
  EXPECT_EQ(run("%restart 1 --from 0").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message,
              HasSubstr("--from needs all ranks: rank 3 is dead, too (%restart 1,3 --from 0)"));
  EXPECT_EQ(session_->target_words(), "ranks 0,2");
}

TEST_F(Deaths, ADeadRankCanNotBeChosen) {
  start(3);
  run("rank 1 kill 9");
  EXPECT_EQ(run("%rank 1").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("rank 1 is dead"));
  EXPECT_EQ(session_->target_words(), "ranks 0,2") << "as before";
  EXPECT_EQ(run("%stack 1").status, CellStatus::usage_error);
  EXPECT_EQ(run("%rank all").status, CellStatus::ok);
}

TEST_F(Deaths, AChosenRankThatDiesIsNamedByThePrompt) {
  start(3);
  run("%rank 2");
  end_last_rank();
  EXPECT_EQ(session_->target_words(), "rank 2 dead");
  EXPECT_EQ(run("%rank").status, CellStatus::ok);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("%rank all"));
}

// The other rank runs on until it is interrupted, which happens when the death has been reported.
TEST_F(Deaths, ADeathIsToldWhileOthersRunOn) {
  start(2);
  recorder_.also = [this](const Event& event) {
    const auto* error = std::get_if<ErrorEvent>(&event);
    if (error && error->others_run) session_->interrupt();
  };
  const auto outcome = run("rank 1 kill 11\nloop\n");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u) << "not again at the end";
  EXPECT_EQ(errors[0].type, "SIGSEGV");
  EXPECT_EQ(recorder_.all<CellEvent>().at(0).rank_status.at(0), CellStatus::interrupted);
}

/// Whether no thread of the process runs, except the caller's.
bool is_quiet(pid_t process) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task"))
    if (const int thread = std::stoi(task.path().filename()); thread != ::gettid() && process_state(thread) == 'R')
      return false;
  return true;
}

TEST_F(Deaths, ADeathIsToldInTheMidstOfAFlood) {
  start(2);
  const pid_t writer = children().at(3), dying = children().at(4);
  recorder_.also = [&](const Event& event) {
    if (!std::holds_alternative<OutputEvent>(event)) return;
    ::kill(dying, SIGKILL);
    // The session handles a message no sooner than all that the writer may send has arrived: more always waits.
    while (!is_quiet(writer) || !is_quiet(::getpid())) std::this_thread::yield();
  };
  run("rank 0 storm 67108864\nrank 1 loop\n");
  recorder_.also = nullptr;
  const auto& events = recorder_.events;
  const auto death = std::ranges::find_if(events, [](const auto& e) { return std::holds_alternative<RankEvent>(e); });
  const auto rest =
      std::find_if(death, events.end(), [](const auto& e) { return std::holds_alternative<OutputEvent>(e); });
  EXPECT_NE(rest, events.end()) << "it was told at the end of the output";
}

TEST_F(Deaths, WhatCameBeforeAnInterruptDecides) {
  start(2);
  recorder_.also = [this](const Event& event) {
    if (std::holds_alternative<RankEvent>(event)) session_->interrupt();
  };
  auto outcome = run("rank 1 kill 9\nloop\n");
  ASSERT_TRUE(outcome.before_interrupt);
  EXPECT_EQ(outcome.before_interrupt->status, CellStatus::dead);
  EXPECT_EQ(code_before_interrupt({}, *outcome.before_interrupt, {0, 1}), kExitDeath);
  outcome = run_while_pressing<OutputEvent>("print in\nstubborn\n");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  ASSERT_TRUE(outcome.before_interrupt);
  EXPECT_EQ(outcome.before_interrupt->status, CellStatus::ok);
  EXPECT_EQ(code_before_interrupt({}, *outcome.before_interrupt, {0}), kExitOk) << "it was ended because of that";
}

TEST_F(Deaths, AFindingBeforeAnInterruptDecides) {
  start(1);
  recorder_.also = [this](const Event& event) {
    if (std::holds_alternative<FindingEvent>(event)) session_->interrupt();
  };
  const auto outcome = run("fault net differs\nloop\n");
  EXPECT_EQ(outcome.status, CellStatus::interrupted);
  ASSERT_TRUE(outcome.before_interrupt);
  EXPECT_EQ(code_before_interrupt({}, *outcome.before_interrupt, {0}), kExitFailed);
}

// What %load has queued belongs to the cell with the %load, however that ends.
TEST_F(Deaths, AFailingStartDuringLoadLeavesNothingQueued) {
  std::ofstream(runtime_ / "old.cpp") << "// %%\n%dist_shutdown\n// %%\nprint old\n// %%\nprint older\n";
  start(2);
  ::setenv("FAKE_WORKER", "die", 1);
  EXPECT_THROW(run("%load " + (runtime_ / "old.cpp").string()), StartError);
  ::unsetenv("FAKE_WORKER");
  EXPECT_EQ(run("print new").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(0), "new\n");
}

TEST_F(Deaths, AFailingStartKeepsTheOptionsOfTheLast) {
  start(2);
  run("%dist_shutdown");
  ::setenv("FAKE_WORKER", "die", 1);
  EXPECT_THROW(run("%dist_init -n 3"), StartError);
  ::unsetenv("FAKE_WORKER");
  EXPECT_EQ(run("print x").status, CellStatus::ok);
  EXPECT_EQ(session_->world_size(), 2);
}

}  // namespace
}  // namespace lockstep::shell
