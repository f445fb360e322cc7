// Sessions as front ends use them. Rule numbers are those of docs/architecture.md.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/error.h"
#include "session_fixture.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> file_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

/// The process of the store that a session of this process has started.
pid_t store_process() {
  for (const pid_t pid : children()) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string words;
    std::getline(file, words);
    if (words.find("--store") != std::string::npos) return pid;
  }
  throw std::runtime_error("there is no store");  // and no number that kill() takes for more than one process
}

/// Not a zombie either: a container may have no init that reaps those.
bool runs(pid_t pid) { return process_state(pid) != 'Z'; }

TEST_F(SessionTest, EqualOutputAndValuesAreOneEvent) {
  start(3);
  const auto outcome = run("print hello\nvalue 2\n");
  EXPECT_EQ(outcome.status, CellStatus::ok);
  EXPECT_EQ(outcome.cell, 1);
  const auto output = recorder_.all<OutputEvent>();
  ASSERT_EQ(output.size(), 1u);
  EXPECT_EQ(output[0].bytes, "hello\n");
  EXPECT_EQ(output[0].ranks, (RankSet{0, 1, 2}));
  ASSERT_EQ(recorder_.all<ValueEvent>().size(), 1u);
  const auto cells = recorder_.all<CellEvent>();
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].status, CellStatus::ok);
  EXPECT_EQ(cells[0].run_ms.size(), 3u);
}

TEST_F(SessionTest, OutputThatDiffersComesInRankOrder) {
  start(3);
  run("rank 2 print c\nrank 0 print a\nrank 1 print b\n");
  std::vector<std::string> texts;
  for (const auto& e : recorder_.all<OutputEvent>()) texts.push_back(e.ranks.str() + e.bytes);
  EXPECT_THAT(texts, ElementsAre("0a\n", "1b\n", "2c\n"));
}

TEST_F(SessionTest, OneRanksErrorIsReportedForItAlone) {
  start(3);
  const auto outcome = run("print one\nrank 1 throw too bad\n");
  EXPECT_EQ(outcome.status, CellStatus::error);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].ranks, RankSet{1});
  EXPECT_EQ(errors[0].where, "cell 1, line 2");
  const auto cell = recorder_.all<CellEvent>().at(0);
  EXPECT_EQ(cell.rank_status.at(0), CellStatus::ok);
  EXPECT_EQ(cell.rank_status.at(1), CellStatus::error);
  EXPECT_EQ(run("print two").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(1), "two\n");
}

TEST_F(SessionTest, ConsequencesComeBeforeTheRootCause) {
  start(3);
  run("rank 0 throw the cause\nconsequence a peer failed\n");
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_FALSE(errors[0].root_cause);
  EXPECT_EQ(errors[0].ranks, (RankSet{1, 2}));
  EXPECT_EQ(errors[1].message, "the cause");
}

TEST_F(SessionTest, Rule2WhatOneRankCannotLoadNoneRuns) {
  start(2);
  const auto outcome = run("print x\nrank 1 refuse undefined symbol: f()\n");
  EXPECT_EQ(outcome.status, CellStatus::compile_error);
  EXPECT_TRUE(recorder_.all<OutputEvent>().empty());
  EXPECT_EQ(recorder_.all<ErrorEvent>().at(0).ranks, RankSet{1});
  EXPECT_EQ(run("print y").status, CellStatus::ok);
}

TEST_F(SessionTest, CompileErrorsRunNothingAndComeOnce) {
  start(2);
  const auto outcome = run("print x\nerror use of undeclared identifier 'y'\n");
  EXPECT_EQ(outcome.status, CellStatus::compile_error);
  EXPECT_TRUE(recorder_.all<OutputEvent>().empty());
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].where, "cell 1, line 2");
  EXPECT_EQ(errors[0].diagnostics.size(), 1u);
}

TEST_F(SessionTest, MagicsChooseRanks) {
  start(4);
  run("// a comment\n%%rank[0,2]\nprint x\n");
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 2}));
  run("%rank 1\n");
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).text, "cells run on rank 1");
  run("print y");
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, RankSet{1});
  run("%%distributed\nprint z");
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, RankSet::all(4));
  run("%rank 2-3 print w");
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{2, 3}));
  run("%rank all");
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).text, "cells run on ranks 0-3");
  run("%dist_mode -d");
  run("print v");
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, RankSet{0});
}

TEST_F(SessionTest, BadRankSetsAndMagicsRunNothing) {
  start(4);
  for (const std::string text :
       {"%%rank [7]\nprint x", "%%rank 2-0\nprint x", "%%rank []\nprint x", "%%rank a\nprint x", "%%rnk 0\nprint x",
        "print x;\n%%rank 0\nprint y", "%rank 0 %sync", "%dist_mode --on\nprint x", "%%rank 0 print x"}) {
    const auto outcome = run(text);
    EXPECT_EQ(outcome.status, CellStatus::usage_error) << text;
    EXPECT_TRUE(recorder_.all<OutputEvent>().empty()) << text;
    EXPECT_EQ(recorder_.all<ErrorEvent>().size(), 1u) << text;
  }
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("%%rank"));
}

TEST_F(SessionTest, CellsOfMagicsAloneHaveNoNumber) {
  start(2);
  EXPECT_EQ(run("%dist_status").cell, 0);
  EXPECT_EQ(run("%sync").cell, 0);
  EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr("waited"));
  EXPECT_EQ(run("print x").cell, 1);
  EXPECT_EQ(run("// nothing\n").cell, 0);
}

TEST_F(SessionTest, AnAnswerOfAnotherFormIsAnErrorThatNamesRankAndQuestion) {
  start(2);
  run(R"(rank 1 answer {"state": 3, "stack": 3, "collectives": 3, "waits": 3})");
  for (const auto& [magic, words] : {std::pair{"%dist_status", "rank 1: the answer to 'status' can't be read: state"},
                                     {"%collectives", "rank 1: the answer to 'collectives' can't be read: collectives"},
                                     {"%stack", "rank 1\n    the answer to 'stack' can't be read: stack"},
                                     {"%hang", "rank 1: the answer to 'hang' can't be read: waits"}}) {
    EXPECT_EQ(run(magic).status, CellStatus::ok) << magic;
    EXPECT_THAT(recorder_.all<MessageEvent>().at(0).text, HasSubstr(words));
  }
}

TEST_F(SessionTest, LineMagicsSplitACellAndLinesHold) {
  start(2);
  const auto outcome = run("print a\n;\n%sync\n\nthrow here\n");
  EXPECT_EQ(outcome.cell, 1);
  EXPECT_EQ(recorder_.all<ErrorEvent>().at(0).where, "cell 3, line 5")
      << "the fake says which part it is; %sync was one, too";
  EXPECT_EQ(recorder_.all<CellEvent>().size(), 1u);
  EXPECT_EQ(recorder_.bytes(0), "a\n");
}

TEST_F(SessionTest, TimesAreToldPerRank) {
  start(2);
  run("%%time\nprint a");
  const auto data = recorder_.all<MessageEvent>().at(0).data;
  EXPECT_EQ(data.at("run_ms").size(), 2u);
  run("%%timeit\nprint a");
  const auto runs = recorder_.all<MessageEvent>().at(0).data.at("runs").get<int>();
  EXPECT_GE(runs, 5);
  run("%%timeit -n 1 -r 3\nprint a");
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).data.at("runs"), 3);
  EXPECT_EQ(run("%%timeit -r 0\nprint a").status, CellStatus::usage_error);
  EXPECT_EQ(run("%timeit -r 2").status, CellStatus::usage_error);
  run("%timeit -r 2 print a");
  EXPECT_EQ(recorder_.all<MessageEvent>().at(0).data.at("runs"), 2);
}

TEST_F(SessionTest, Rule7ADeathCostsThatRankOnly) {
  start(3);
  const auto outcome = run("print before\nrank 1 kill 11\nprint after\n");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  EXPECT_EQ(recorder_.bytes(1), "before\n");
  EXPECT_EQ(recorder_.bytes(2), "before\nafter\n");
  const auto error = recorder_.all<ErrorEvent>().at(0);
  EXPECT_EQ(error.type, "SIGSEGV");
  EXPECT_EQ(error.ranks, RankSet{1});
  EXPECT_EQ(session_->live_ranks(), (RankSet{0, 2}));
  EXPECT_EQ(run("print again").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 2}));
  EXPECT_EQ(run("%%rank 1\nprint x").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("%dist_reset"));
  EXPECT_EQ(run("%dist_reset").status, CellStatus::ok);
  EXPECT_EQ(session_->live_ranks(), RankSet::all(3));
}

TEST_F(SessionTest, ExitIsADeathWithItsCode) {
  start(2);
  EXPECT_EQ(run("rank 0 exit 3").status, CellStatus::dead);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("code 3"));
}

TEST_F(SessionTest, Rule6WhatAWorkerLeavesBehindIsEnded) {
  start(2);
  run("rank 1 child\n");
  const auto output = recorder_.bytes(1);
  const pid_t child = std::atoi(output.substr(6).c_str());
  ASSERT_TRUE(runs(child));
  run("rank 1 kill 9");
  for (int i = 0; i < 6000 && runs(child); ++i) session_->serve(-1, std::chrono::milliseconds(10));
  EXPECT_FALSE(runs(child)) << "the child of a dead worker lives on";
}

TEST_F(SessionTest, Rule6NothingIsLeftOfASession) {
  start(3);
  run("child");
  const auto pids = children();
  EXPECT_EQ(pids.size(), 6u);
  const auto folder = file_names(runtime_ / "lockstep");
  EXPECT_EQ(folder.size(), 1u);
  session_.reset();
  EXPECT_TRUE(children().empty());
  EXPECT_TRUE(file_names(runtime_ / "lockstep").empty());
}

TEST_F(SessionTest, TheStoreAndRanksAreCopiesOfOneProcess) {
  for (const int ranks : {1, 3}) {
    start(ranks);
    const auto pids = children();
    ASSERT_EQ(pids.size(), 3u + ranks);
    EXPECT_EQ(store_process(), pids[2]);
    EXPECT_TRUE(store_is_copy(pids[2]));
    EXPECT_TRUE(std::all_of(pids.begin() + 3, pids.end(), is_copy));
    session_.reset();
  }
}

TEST_F(SessionTest, RanksStartWhereNoProcessCanBeCopied) {
  for (const char* how : {"no copies", "killed"}) {
    ::setenv("FAKE_WORKER", how, 1);
    start(2);
    EXPECT_EQ(run("print hello").status, CellStatus::ok);
    EXPECT_EQ(recorder_.bytes(1), "hello\n");
    EXPECT_FALSE(is_copy(children().back()));
    EXPECT_FALSE(store_is_copy(store_process()));
    session_.reset();
  }
}

TEST_F(SessionTest, AStartThatFailsLeavesNothing) {
  for (const auto& [variable, value, words] :
       std::vector<std::array<std::string, 3>>{{"FAKE_WORKER", "die", "rank 1 exited with code 127"},
                                               {"FAKE_WORKER", "die", "libtorch_cpu.so: no such file"},
                                               {"FAKE_WORKER", "refuse", "rank 1: no process group"},
                                               {"FAKE_WORKER", "old", "LibTorch 2.15.0"},
                                               {"FAKE_COMPILER", "old", "0.0.1"},
                                               {"FAKE_COMPILER", "fail", "header is damaged"},
                                               {"FAKE_COMPILER", "die", "no room for me"}}) {
    ::setenv(variable.c_str(), value.c_str(), 1);
    Session session({.num_processes = 2, .gpu_ids = {}, .include_dirs = {}, .arguments = {}}, recorder_);
    try {
      session.start();
      ADD_FAILURE() << "started with " << variable << "=" << value;
    } catch (const StartError& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
    EXPECT_TRUE(children().empty());
    EXPECT_TRUE(file_names(runtime_ / "lockstep").empty());
    ::unsetenv(variable.c_str());
  }
  Session session({.num_processes = 2, .gpu_ids = {}, .include_dirs = {}, .arguments = {}}, recorder_);
  EXPECT_NO_THROW(session.start());
}

TEST_F(SessionTest, ARankThatDiesEndsTheWaitForTheCompiler) {
  ::setenv("FAKE_COMPILER", "wait", 1);
  ::setenv("FAKE_WORKER", "die", 1);
  Session session({.num_processes = 2, .gpu_ids = {}, .include_dirs = {}, .arguments = {}}, recorder_);
  try {
    session.start();
    ADD_FAILURE();
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the session could not start: rank 1 exited with code 127"));
  }
  EXPECT_TRUE(children().empty());
}

TEST_F(SessionTest, MissingProgramsAreNamed) {
  ::setenv("LOCKSTEP_BIN", runtime_.c_str(), 1);
  Session session({}, recorder_);
  try {
    session.start();
    ADD_FAILURE();
  } catch (const StartError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lockstep-compiler"));
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_BIN"));
  }
}

TEST_F(SessionTest, InterruptEndsALoopAndKeepsTheSession) {
  start(2);
  interrupt_on<OutputEvent>();
  const auto outcome = run("print in\nloop");
  EXPECT_EQ(outcome.status, CellStatus::interrupted);
  EXPECT_TRUE(recorder_.all<ErrorEvent>().empty());
  recorder_.also = nullptr;
  EXPECT_EQ(run("print x").status, CellStatus::ok);
}

TEST_F(SessionTest, InterruptEndsACompile) {
  auto& session = start(2);
  const std::string begun = runtime_ / "begun";
  ASSERT_EQ(::mkfifo(begun.c_str(), 0600), 0);
  std::jthread later([&] {
    ::close(::open(begun.c_str(), O_RDONLY));
    session.interrupt();
  });
  EXPECT_EQ(run("slow " + begun).status, CellStatus::interrupted);
  EXPECT_EQ(run("print x").status, CellStatus::ok);
}

TEST_F(SessionTest, TheThirdInterruptEndsRanksThatDoNotComeBack) {
  start(2);
  // On rank 1 alone: another rank of the cell might not have left it yet when the third interrupt comes.
  const auto outcome = run_while_pressing<OutputEvent>("%%rank 1\nprint in\nstubborn\n");
  EXPECT_EQ(outcome.status, CellStatus::dead);
  EXPECT_EQ(session_->live_ranks(), RankSet{0});
  bool offered = false;
  for (const auto& message : recorder_.all<MessageEvent>())
    offered = offered || message.text.find("Ctrl-C once more") != std::string::npos;
  EXPECT_TRUE(offered);
}

TEST_F(SessionTest, InterruptEndsARegroup) {
  auto& session = start(2);
  run("rank 1 slow_regroup\nrank 0 collective");
  session.interrupt();  // the loop takes it in the wait for the ranks' answers
  EXPECT_EQ(run("print x").status, CellStatus::interrupted);
  EXPECT_EQ(run("print x").status, CellStatus::ok) << "connected again";
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty());
}

TEST_F(SessionTest, TheStoresDeathIsToldAtOnce) {
  auto& session = start(2);
  ASSERT_EQ(::kill(store_process(), SIGKILL), 0);
  Pipe reported = make_pipe();
  recorder_.also = [&](const Event& event) {
    if (std::holds_alternative<ErrorEvent>(event)) reported.write.reset();
  };
  session.serve(reported.read.get(), std::chrono::minutes(1));
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0].message,
              testing::ContainsRegex(
                  R"(the store's process was killed by SIGKILL; it listened on 127\.0\.0\.1:[1-9][0-9]*\. )"));
  EXPECT_THAT(errors[0].message, HasSubstr("%dist_reset"));
  EXPECT_EQ(run("rank 0 collective").status, CellStatus::ok) << "those that are connected stay so";
  EXPECT_EQ(run("print x").status, CellStatus::ok);
  ASSERT_EQ(recorder_.all<MessageEvent>().size(), 1u);
  EXPECT_THAT(recorder_.all<MessageEvent>()[0].text, HasSubstr("can't connect to one another again"));
  EXPECT_EQ(run("print x").status, CellStatus::ok);
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty()) << "reported once";
  EXPECT_EQ(run("new_group").status, CellStatus::aborted);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("new_group needs the store"));
  EXPECT_EQ(run("%dist_reset").status, CellStatus::ok);
  EXPECT_EQ(run("rank 0 collective").status, CellStatus::ok);
  EXPECT_EQ(run("print x").status, CellStatus::ok);
  EXPECT_TRUE(recorder_.all<MessageEvent>().empty());
}

TEST_F(SessionTest, TheStoresDeathFreesRanksInNewGroup) {
  start(2);
  recorder_.also = [&](const Event& event) {
    if (std::holds_alternative<OutputEvent>(event)) ::kill(store_process(), SIGKILL);
  };
  EXPECT_EQ(run("new_group").status, CellStatus::aborted);
}

TEST_F(SessionTest, TimeLimitOfACell) {
  SessionOptions options;
  options.cell_timeout_s = 0.1;
  start(2, options);
  const auto outcome = run("rank 1 loop");
  EXPECT_EQ(outcome.status, CellStatus::timeout);
  const auto cell = recorder_.all<CellEvent>().at(0);
  EXPECT_EQ(cell.rank_status.at(0), CellStatus::ok);
  EXPECT_EQ(cell.rank_status.at(1), CellStatus::timeout);
  EXPECT_EQ(recorder_.all<ErrorEvent>().at(0).type, "timeout");
}

TEST_F(SessionTest, AProvenHangIsAbortedInRun) {
  SessionOptions options;
  options.abort_hangs = true;
  start(3, options);
  const auto outcome = run("rank 0 join\nrank 2 join\n");
  EXPECT_EQ(outcome.status, CellStatus::aborted);
  ASSERT_EQ(outcome.findings.size(), 1u);
  const auto& hang = outcome.findings[0];
  EXPECT_EQ(hang.inspector, "hang");
  EXPECT_EQ(hang.verdict, Verdict::hang);
  EXPECT_EQ(hang.ranks, RankSet{1});
  EXPECT_EQ(hang.reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(hang.op->name, "all_reduce");
  EXPECT_EQ(run("print x").status, CellStatus::ok) << "connected again";
}

TEST_F(SessionTest, ACollectiveOnSomeRanksOnlyIsAHang) {
  SessionOptions options;
  options.abort_hangs = true;
  start(2, options);
  EXPECT_EQ(run("%%rank 0\njoin").status, CellStatus::aborted);
}

TEST_F(SessionTest, InATerminalThePromptComesBackAndAbortFrees) {
  start(2);
  EXPECT_EQ(run("rank 0 join").status, CellStatus::waiting);
  EXPECT_EQ(recorder_.all<FindingEvent>().size(), 1u);
  EXPECT_EQ(run("print x").status, CellStatus::usage_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("%abort"));
  EXPECT_EQ(run("%%rank 1\nprint y").status, CellStatus::ok);
  EXPECT_EQ(run("%abort").status, CellStatus::ok);
  const auto cells = recorder_.all<CellEvent>();
  ASSERT_EQ(cells.size(), 1u) << "the cell that was left open is over now";
  EXPECT_EQ(cells[0].cell, 1);
  EXPECT_EQ(cells[0].status, CellStatus::aborted);
  EXPECT_EQ(run("print z").status, CellStatus::ok);
  EXPECT_EQ(recorder_.all<OutputEvent>().at(0).ranks, (RankSet{0, 1}));
}

TEST_F(SessionTest, Rule5AStormArrivesCompleteAndInOrder) {
  start(2);
  constexpr size_t kBytes = 20 << 20;
  size_t total = 0, wrong = 0, largest = 0;
  int64_t next = 0;
  std::string partial;
  recorder_.also = [&](const Event& event) {
    const auto* e = std::get_if<OutputEvent>(&event);
    if (!e || !e->ranks.contains(1)) return;
    total += e->bytes.size();
    largest = std::max(largest, e->bytes.size());
    partial += e->bytes;
    size_t at = 0;
    for (; at + 64 <= partial.size(); at += 64, ++next)
      if (std::atoll(partial.c_str() + at) != next) ++wrong;
    partial.erase(0, at);
  };
  EXPECT_EQ(run("storm " + std::to_string(kBytes)).status, CellStatus::ok);
  EXPECT_EQ(total, kBytes);
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(largest, size_t{protocol::kOutputWindow}) << "more than the window was held";
}

TEST_F(SessionTest, Rule5AStormOfOneRankOnly) {
  start(2);
  size_t total = 0;
  recorder_.also = [&](const Event& event) {
    if (const auto* e = std::get_if<OutputEvent>(&event)) total += e->bytes.size();
  };
  EXPECT_EQ(run("rank 0 storm 20000000").status, CellStatus::ok);
  EXPECT_EQ(total, 20000000u);
}

TEST_F(SessionTest, TheCompilersDeathCostsNoNames) {
  start(2);
  run("print a");
  run("error x");
  run("print b");
  const auto outcome = run("crash");
  EXPECT_EQ(outcome.status, CellStatus::compile_error);
  EXPECT_THAT(recorder_.all<ErrorEvent>().at(0).message, HasSubstr("SIGKILL"));
  EXPECT_EQ(run("print c").status, CellStatus::ok);
  EXPECT_EQ(recorder_.bytes(0), "c\n");
}

TEST_F(SessionTest, TheCompilersDeathWhileIdleIsNoticedByTheNextCell) {
  start(2);
  ::kill(children().front(), SIGKILL);
  session_->serve(-1, std::chrono::milliseconds(50));
  EXPECT_EQ(run("print c").status, CellStatus::ok);
}

TEST_F(SessionTest, Findings) {
  start(2);
  const auto outcome = run("rank 1 fault net differs");
  EXPECT_EQ(outcome.status, CellStatus::ok);
  ASSERT_EQ(outcome.findings.size(), 1u);
  EXPECT_EQ(outcome.findings[0].cell, 1);
}

// Last messages of a rank whose connection stays open are waited for; what waits ends with its session.
TEST_F(SessionTest, RanksOfAFreshSessionDoNotDieOfTheLastOnesEnd) {
  start(2);
  run("rank 1 heir");
  EXPECT_EQ(run("%dist_reset").status, CellStatus::ok);
  session_->serve(-1, std::chrono::seconds(1));  // twice as long as they are waited for
  EXPECT_TRUE(recorder_.all<RankEvent>().empty());
  EXPECT_EQ(session_->live_ranks(), (RankSet{0, 1}));
  EXPECT_EQ(run("print x").status, CellStatus::ok);
}

TEST_F(SessionTest, ShutdownAndStartAgain) {
  start(2);
  run("print a");
  EXPECT_EQ(run("%dist_shutdown").status, CellStatus::ok);
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(run("%dist_init -n 3").status, CellStatus::ok);
  EXPECT_EQ(session_->world_size(), 3);
  EXPECT_EQ(run("print b").cell, 2);
  EXPECT_EQ(run("%dist_init -n 0").status, CellStatus::usage_error);
}

TEST_F(SessionTest, CommandsOfTheShellShowWhatTheyWrite) {
  start(1);
  EXPECT_EQ(run("!echo one; echo two >&2; printf three").status, CellStatus::ok);
  std::string text;
  for (const auto& message : recorder_.all<MessageEvent>()) text += message.text;
  EXPECT_EQ(text, "one\ntwo\nthree");
  EXPECT_EQ(run("!exit 3").status, CellStatus::error);
  const auto errors = recorder_.all<ErrorEvent>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].type, "command_error");
  EXPECT_EQ(errors[0].message, "'exit 3' exited with code 3");
  EXPECT_EQ(run("!cat").status, CellStatus::ok) << "there is no input to wait for";
  EXPECT_EQ(run("!sleep 1000 & echo started").status, CellStatus::ok) << "what is left in the background ends";
}

TEST_F(SessionTest, CommandsOfTheShellAreInterrupted) {
  start(1);
  interrupt_on<MessageEvent>();
  EXPECT_EQ(run("!echo begun; exec sleep 1000").status, CellStatus::interrupted);
  interrupt_on<MessageEvent>(2);
  EXPECT_EQ(run("!trap '' INT; echo stubborn; sleep 1000; sleep 1000").status, CellStatus::interrupted);
}

TEST_F(SessionTest, TextBecomesAFile) {
  start(1);
  const std::string file = (runtime_ / "notes.txt").string();
  EXPECT_EQ(run("%%writefile " + file + "\n%no_magic\n\n!no command\n").status, CellStatus::ok);
  EXPECT_EQ(run("%%writefile -a " + file + "\nmore\n").status, CellStatus::ok);
  std::ifstream stream(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), "%no_magic\n\n!no command\nmore\n");
  EXPECT_EQ(run("%%writefile " + runtime_.string() + "\nx\n").status, CellStatus::usage_error);
}

}  // namespace
}  // namespace lockstep::shell
