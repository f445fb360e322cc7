// What a dead job left behind: files of all kinds are found and read as data, and the first cause comes last.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/read.h"
#include "inspectors/remains/error_file.h"
#include "inspectors/remains/job_files.h"
#include "inspectors/remains/judge.h"
#include "inspectors/remains/stack_text.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
namespace fs = std::filesystem;

/// Gone at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = fs::temp_directory_path() / "lockstep-remains-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  std::string str() const { return path_; }

 private:
  fs::path path_;
};

struct Call {
  int seq = 1;
  std::string op = "all_reduce", state = "completed";
  std::vector<int64_t> shape = {1000};
  std::string dtype = "Float", group = "0";
};

/// A running job whose ranks were looked at from outside.
Remains looked_at(const std::vector<RankDoing>& doing) {
  Remains remains;
  remains.doing = doing;
  remains.files = static_cast<int64_t>(doing.size());
  remains.look = OutsideLook{.world = RankSet::all(static_cast<int>(doing.size())), .elsewhere = {}};
  for (const RankDoing& each : doing)
    remains.stacks.push_back(
        {.rank = each.rank,
         .thread = "MainThread",
         .is_main = true,
         .frames = {{.function = "step", .file = "train.py", .line = each.op == "barrier" ? 9 : 7}},
         .origin = {}});
  return remains;
}

RankDoing waits_in(int rank, const std::string& op) {
  return {.rank = rank, .kind = FindingKind::collective, .words = "waits in " + op, .op = op};
}

/// A dump in the form of c10d.
std::string dump(int world, const std::vector<Call>& calls) {
  json entries = json::array();
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  int64_t id = 0;
  for (const Call& call : calls)
    entries.push_back({{"record_id", id++},
                       {"pg_id", 0},
                       {"process_group", {call.group, call.group == "0" ? "default_pg" : "undefined"}},
                       {"collective_seq_id", call.seq},
                       {"p2p_seq_id", 0},
                       {"op_id", call.seq},
                       {"profiling_name", "nccl:" + call.op},
                       {"time_created_ns", 1'700'000'000'000'000'000 + id},
                       {"input_sizes", {call.shape}},
                       {"input_dtypes", {call.dtype}},
                       {"output_sizes", {call.shape}},
                       {"output_dtypes", {call.dtype}},
                       {"state", call.state},
                       {"time_discovered_started_ns", nullptr},
                       {"time_discovered_completed_ns", nullptr},
                       {"retired", call.state == "completed"},
                       {"timeout_ms", 600000},
                       {"is_p2p", false}});
  return json({{"version", "2.10"},
               {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", json(ranks).dump()}}}}},
               {"pg_status", json::object()},
               {"entries", entries}})
      .dump();
}

Finding last_of(const std::vector<std::string>& paths) { return judge(read_remains(paths)).back(); }

TEST(Remains, ARankThatHasNotCalledIsNamedWithItsLastCall) {
  const Folder job;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<Call> calls = {{.seq = 1}, {.seq = 2}};
    if (rank != 2) calls.push_back({.seq = 3, .state = "scheduled"});
    job.write("trace_rank_" + std::to_string(rank), dump(4, calls));
  }
  const Finding finding = last_of({job.str()});
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_EQ(finding.verdict, Verdict::hang);
  EXPECT_EQ(finding.ranks, RankSet{2});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1, 3}));
  EXPECT_EQ(finding.op->seq, 3);
  EXPECT_THAT(finding.message,
              AllOf(HasSubstr("ranks 0-1,3 wait in all_reduce #3 of default_pg float32 [1000], which rank 2 has not "
                              "called"),
                    HasSubstr("rank 2 called all_reduce #2 of default_pg last, which has ended")));
}

TEST(Remains, RankFilesOfTheTestsAreJudged) {
  std::vector<std::string> paths;
  for (int rank = 0; rank < 4; ++rank)
    paths.push_back(std::string(LOCKSTEP_TEST_EVIDENCE) + "/nccl_trace_rank_" + std::to_string(rank) + ".json");
  const auto findings = judge(read_remains(paths));
  // Messages that are queued after the collective are no findings.
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::fault);
  EXPECT_EQ(findings[0].ranks, RankSet{2});
  EXPECT_EQ(findings[0].op->seq, 17);
  // A pickle that Python has written, and JSON of the same rank.
  const Finding gloo = last_of({std::string(LOCKSTEP_TEST_EVIDENCE) + "/gloo_trace_rank_0",
                                std::string(LOCKSTEP_TEST_EVIDENCE) + "/gloo_trace_rank_1"});
  EXPECT_EQ(gloo.verdict, Verdict::hang);
  EXPECT_EQ(gloo.ranks, RankSet{1});
}

TEST(Remains, AnotherCollectiveShapeOrDtypeIsAMismatch) {
  const auto judged = [](const Call& other) {
    const Folder job;
    for (int rank = 0; rank < 3; ++rank) {
      Call call = rank == 1 ? other : Call{};
      call.state = "scheduled";
      job.write("trace_rank_" + std::to_string(rank), dump(3, {call}));
    }
    return last_of({job.str()});
  };
  const Finding op = judged({.op = "broadcast"});
  EXPECT_EQ(op.verdict, Verdict::op_mismatch);
  EXPECT_EQ(op.ranks, RankSet{1});
  EXPECT_EQ(op.reference_ranks, (RankSet{0, 2}));
  EXPECT_THAT(op.message, HasSubstr("ranks 0,2 called all_reduce float32 [1000], rank 1 called broadcast"));
  EXPECT_EQ(judged({.shape = {999}}).verdict, Verdict::shape_mismatch);
  EXPECT_EQ(judged({.dtype = "Double"}).verdict, Verdict::dtype_mismatch);
}

TEST(Remains, AMinorityThatIsLargerThanTheOthersIsNotRight) {
  const Folder job;
  for (int rank = 0; rank < 4; ++rank)
    job.write("trace_rank_" + std::to_string(rank),
              dump(4, {{.state = "scheduled", .shape = {rank < 2 ? 1000 : rank}}}));
  const Finding finding = last_of({job.str()});
  EXPECT_EQ(finding.verdict, Verdict::shape_mismatch);
  EXPECT_EQ(finding.ranks, RankSet::all(4));
  EXPECT_EQ(finding.reference_ranks, RankSet());
}

TEST(Remains, ARankThatIsFarAheadHasCalledIt) {
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 10, .state = "scheduled"}}));
  std::vector<Call> calls;
  for (int seq = 1; seq <= 500; ++seq) calls.push_back({.seq = seq});
  job.write("trace_rank_1", dump(2, calls));
  const Finding finding = last_of({job.str()});
  EXPECT_EQ(finding.ranks, RankSet{0});
  EXPECT_THAT(finding.message, HasSubstr("all ranks have called all_reduce #10"));
}

TEST(Remains, UnequalInputsOfAllToAllAreNoMismatch) {
  const Folder job;
  for (int rank = 0; rank < 2; ++rank)
    job.write("trace_rank_" + std::to_string(rank),
              dump(2, {{.op = "all_to_all", .state = "scheduled", .shape = {rank + 1}}}));
  EXPECT_EQ(last_of({job.str()}).verdict, Verdict::hang);
}

TEST(Remains, ARankThatIsInAnotherGroupIsNamedWithThat) {
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 1}, {.seq = 2, .state = "scheduled"}}));
  job.write("trace_rank_1", dump(2, {{.seq = 1}, {.seq = 5, .op = "all_gather", .state = "scheduled", .group = "7"}}));
  const Finding finding = judge(read_remains({job.str()})).back();
  EXPECT_EQ(finding.kind, FindingKind::other_collective);
  EXPECT_EQ(finding.ranks, (RankSet{0, 1}));
  EXPECT_THAT(finding.message, AllOf(HasSubstr("rank 0 waits in all_reduce #2 of default_pg float32 [1000] for rank 1"),
                                     HasSubstr("rank 1 waits in all_gather #5 of group 7 float32 [1000] for rank 0")));
}

constexpr const char* kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"/job/train.py\", line 40, in <module>\n"
    "    main()\n"
    "    ^^^^^^\n"
    "  File \"/job/data.py\", line 12, in batch\n"
    "    return table[index]\n"
    "  File \"/usr/lib/python3.11/site-packages/torch/x.py\", line 7, in inner\n"
    "KeyError: 'step'\n";

TEST(Remains, TheExceptionOfOneRankIsTheCauseAndItsPeersErrorsAreNot) {
  const Folder job;
  job.write("attempt_0/0/stderr.log", "[rank0]: " + std::string("Traceback (most recent call last):\n") +
                                          "[rank0]:   File \"/job/train.py\", line 41, in step\n"
                                          "[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:34\n");
  job.write("attempt_0/1/stderr.log", kTraceback);
  job.write("trace_rank_0", dump(2, {{.seq = 1}, {.seq = 2, .state = "scheduled"}}));
  job.write("trace_rank_1", dump(2, {{.seq = 1}}));
  const auto findings = judge(read_remains({job.str()}));
  const Finding& cause = findings.back();
  EXPECT_EQ(cause.severity, Severity::fault);
  EXPECT_EQ(cause.ranks, RankSet{1});
  EXPECT_EQ(cause.kind, FindingKind::threw);
  EXPECT_EQ(cause.where, "/job/data.py:12 in batch");
  EXPECT_THAT(cause.message, HasSubstr("rank 1 raised KeyError: 'step' (/job/data.py:12 in batch)"));
  EXPECT_EQ(std::ranges::count_if(findings, [](const Finding& each) { return each.severity == Severity::fault; }), 1);
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& each) {
    return each.verdict == Verdict::hang && each.message.find("rank 1 raised KeyError") != std::string::npos;
  }));
}

TEST(Remains, ARankThatRaisedOrFinishedIsNotInWhatItCalledLast) {
  const auto hangs_of = [](const Remains& remains) {
    std::vector<Finding> findings = judge(remains);
    std::erase_if(findings, [](const Finding& each) { return each.verdict != Verdict::hang; });
    return findings;
  };
  // As Gloo leaves it: rank 1 has left #3, and the recorder of its process does not know that yet.
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 3}, {.seq = 4, .state = "scheduled"}}));
  job.write("trace_rank_1", dump(2, {{.seq = 3, .state = "scheduled"}}));
  Remains remains = read_remains({job.str()});
  EXPECT_THAT(hangs_of(remains).at(0).message, HasSubstr("rank 1 has not finished it"));

  Remains raised = remains;
  raised.errors = {{.rank = 1, .type = "ValueError", .message = "no such sample: 17"}};
  Finding finding = hangs_of(raised).at(0);
  EXPECT_EQ(finding.op->seq, 4);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.message, HasSubstr("which rank 1 has not called; rank 1 raised ValueError"));
  EXPECT_EQ(judge(raised).back().kind, FindingKind::threw);

  Remains finished = remains;
  finished.doing = {{.rank = 1, .kind = FindingKind::finished, .words = "has finished", .ended = true}};
  finding = hangs_of(finished).at(0);
  EXPECT_EQ(finding.op->seq, 4);
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_EQ(finding.kind, FindingKind::finished);

  // An error of the collective itself: the rank was in it.
  Remains timed_out = remains;
  timed_out.errors = {{.rank = 1, .type = "RuntimeError", .message = "Timed out waiting 5000ms for recv operation"}};
  EXPECT_THAT(hangs_of(timed_out).at(0).message, HasSubstr("rank 1 has not finished it"));
}

TEST(Remains, FoldersOfTorchrunOfSeveralMachines) {
  const Folder job;
  const std::string warning = "[rank%]:[W1201 02:00:00.0 socket.cpp:200] Warning\n";
  const auto names = [&](int rank) { return std::string(warning).replace(5, 1, std::to_string(rank)); };
  const json error = {{"message", {{"message", "KeyError: 'step'"}, {"extraInfo", {{"py_callstack", kTraceback}}}}}};
  job.write("node1/none_a/attempt_0/0/stderr.log", names(0));
  job.write("node1/none_a/attempt_0/1/stderr.log", kTraceback);
  job.write("node2/none_b/attempt_0/0/stderr.log", names(2));
  job.write("node2/none_b/attempt_0/1/stderr.log", kTraceback);
  job.write("node2/none_b/attempt_0/1/error.json", error.dump());
  Remains remains = read_remains({job.str() + "/node1", job.str() + "/node2"});
  EXPECT_THAT(remains.unread, IsEmpty());
  EXPECT_EQ(judge(remains).back().ranks, (RankSet{1, 3}));
  EXPECT_EQ(judge(read_remains({job.str()})).back().ranks, (RankSet{1, 3}));

  // Of a third one nobody says which ranks it had.
  job.write("node3/none_c/attempt_0/1/error.json", error.dump());
  remains = read_remains({job.str()});
  ASSERT_THAT(remains.unread, SizeIs(1));
  EXPECT_THAT(remains.unread[0], AllOf(HasSubstr("node3/none_c/attempt_0"), HasSubstr("ranks that are not known")));
  EXPECT_EQ(judge(remains).back().ranks, (RankSet{1, 3}));
  // Alone it is the machine of the job.
  EXPECT_EQ(judge(read_remains({job.str() + "/node3"})).back().ranks, RankSet{1});
}

TEST(Remains, TheEarliestExceptionIsTheCause) {
  const Folder job;
  const auto write = [&](int rank, const std::string& message, int64_t time) {
    job.write("attempt_0/" + std::to_string(rank) + "/error.json",
              json({{"message",
                     {{"message", message},
                      {"extraInfo", {{"py_callstack", kTraceback}, {"timestamp", std::to_string(time)}}}}}})
                  .dump());
  };
  write(0, "ValueError: second", 200);
  write(1, "ValueError: first", 100);
  write(2, "ValueError: second", 210);
  const auto findings = judge(read_remains({job.str()}));
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].ranks, (RankSet{0, 2}));
  EXPECT_EQ(findings[1].ranks, RankSet{1});
  EXPECT_THAT(findings[1].message, HasSubstr("ValueError: first (/job/data.py:12 in batch)"));
}

TEST(Remains, OnlyConsequencesAreNoCause) {
  const Folder job;
  job.write("rank0.log",
            "Traceback (most recent call last):\n  File \"/job/a.py\", line 1, in f\n"
            "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n");
  const auto findings = judge(read_remains({job.str()}));
  EXPECT_TRUE(std::ranges::none_of(findings, [](const Finding& each) { return each.severity == Severity::fault; }));
  EXPECT_THAT(findings.back().message, HasSubstr("was killed"));
}

TEST(Remains, ErrorsThatNoOtherRankCausesAreFaults) {
  const auto is_fault = [](const std::string& error) {
    const Folder job;
    job.write("rank0.log", "Traceback (most recent call last):\n  File \"/job/a.py\", line 1, in f\n" + error + "\n");
    return last_of({job.str()}).severity == Severity::fault;
  };
  EXPECT_TRUE(is_fault("torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE"));
  EXPECT_TRUE(is_fault("torch.distributed.DistBackendError: NCCL error, invalid usage: Duplicate GPU detected"));
  EXPECT_TRUE(is_fault("ConnectionResetError: [Errno 104] Connection reset by peer"));
  EXPECT_TRUE(is_fault("BrokenPipeError: [Errno 32] Broken pipe"));
  EXPECT_TRUE(is_fault("requests.exceptions.ConnectionError: Connection reset by peer"));
  EXPECT_FALSE(is_fault("torch.distributed.DistNetworkError: failed to recv, got 0 bytes"));
  EXPECT_FALSE(is_fault("torch.distributed.DistStoreError: wait timeout after 1000ms, keys: /0"));
  EXPECT_FALSE(is_fault("RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:12721"));
  EXPECT_FALSE(is_fault("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "));
}

TEST(Remains, StacksSayWhatTheRankDoesThatOthersWaitFor) {
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 1, .state = "scheduled"}}));
  job.write("trace_rank_1", dump(2, {}));
  job.write("rank1-stack.txt",
            "Process 77: python train.py\n"
            "Python v3.11.2 (/usr/bin/python3.11)\n\n"
            "Thread 77 (idle): \"MainThread\"\n"
            "    wait (threading.py:320)\n"
            "    next_batch (/job/loader.py:55)\n"
            "    <module> (/job/train.py:9)\n"
            "Thread 78 (idle): \"Thread-1\"\n"
            "    run (threading.py:1)\n");
  EXPECT_THAT(last_of({job.str()}).message, HasSubstr("rank 1 its main thread is at"));
}

/// Dumps of ranks that wait in all_reduce #3, for judge() without files.
Remains waiting(int world, const std::vector<int>& ranks) {
  Remains remains;
  for (const int rank : ranks)
    remains.evidence.push_back(
        read_flight_recorder(dump(world, {{.seq = 1}, {.seq = 2}, {.seq = 3, .state = "scheduled"}}), "a rank", rank));
  remains.files = static_cast<int64_t>(ranks.size());
  return remains;
}

TEST(Watched, WhatARankDoesStandsWithWhereItDoesIt) {
  Remains remains = waiting(3, {0, 2});
  remains.evidence.push_back(read_flight_recorder(dump(3, {{.seq = 1}, {.seq = 2}}), "rank 1", 1));
  remains.doing = {{.rank = 1, .kind = FindingKind::sleeping, .words = "sleeps"}};
  remains.stacks = {{.rank = 1, .thread = "main", .is_main = true, .frames = {{"wait", "train.py", 12}}, .origin = {}}};
  const Finding finding = judge(remains).back();
  EXPECT_EQ(finding.kind, FindingKind::sleeping);
  EXPECT_THAT(finding.message, AllOf(HasSubstr("rank 1 sleeps (train.py:12 in wait)"), HasSubstr("by the Flight")));
}

TEST(Watched, OfAGroupThatNoDumpDescribesRanksInAnotherGroupAreNamed) {
  Remains remains;
  for (const int rank : {0, 1, 2})
    remains.evidence.push_back(read_flight_recorder(
        dump(3, {{.seq = 1, .state = "scheduled", .group = rank == 1 ? "2" : "1"}}), "a rank", rank));
  remains.files = 3;
  const std::vector<Finding> findings = judge(remains);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, FindingKind::other_collective);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_EQ(findings[0].reference_ranks, (RankSet{0, 2}));
  EXPECT_THAT(
      findings[0].message,
      AllOf(HasSubstr("ranks 0,2 wait in all_reduce #1 of group 1 float32 [1000] for rank 1, and rank 1 waits in "
                      "all_reduce #1 of group 2 float32 [1000] for ranks 0,2: none of them can continue, if "),
            HasSubstr("in one order over all of them; by the Flight Recorder")));
}

/// A dump of Gloo: the default group has no name where it is described.
Evidence gloo_dump(int rank, const std::string& ranks, const json& entries) {
  const json groups = {{"", {{"name", ""}, {"desc", ""}, {"ranks", ranks}}}};
  return read_flight_recorder(
      json({{"version", "2.10"}, {"pg_config", groups}, {"entries", entries}, {"pg_status", json::object()}}).dump(),
      "", rank);
}

TEST(Watched, OfGlooARankWithoutAnyCollectiveHasNotCalledTheFirst) {
  const json entries = json::parse(dump(2, {{.seq = 1, .state = "scheduled"}})).at("entries");
  Remains remains;
  remains.files = 2;
  remains.evidence = {gloo_dump(0, "[0, 1]", entries), gloo_dump(1, "[0, 1]", json::array())};
  remains.doing = {{.rank = 1, .kind = FindingKind::collective, .words = "is in recv"}};
  const std::vector<Finding> findings = judge(remains);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("which rank 1 has not called"), HasSubstr("rank 1 is in recv")));
}

TEST(Watched, OfAGroupThatNoDumpDescribesNobodySaysThatAllHaveCalled) {
  const Folder job;
  const Call waits{.seq = 1, .state = "scheduled", .group = "1"};
  job.write("trace_rank_0", dump(2, {{.seq = 1}, waits}));
  job.write("trace_rank_1", dump(2, {{.seq = 1}}));
  Remains remains = read_remains({job.str()});
  remains.doing.push_back({.rank = 1, .kind = FindingKind::sleeping, .words = "sleeps"});
  const Finding finding = judge(remains).back();
  EXPECT_EQ(finding.severity, Severity::fault);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.kind, FindingKind::sleeping);
  EXPECT_EQ(finding.op->group, "1");
  EXPECT_THAT(finding.message, AllOf(HasSubstr("nothing says that rank 1 has called it"), HasSubstr("rank 1 sleeps"),
                                     HasSubstr("by the Flight Recorder")));
  // Where all have called it, the network is left.
  job.write("trace_rank_1", dump(2, {{.seq = 1}, waits}));
  EXPECT_THAT(last_of({job.str()}).message, HasSubstr("all ranks have called"));
}

/// Ranks that wait, each in the first call of a group with its own number.
Remains each_in_its_group(const std::vector<std::vector<int>>& groups) {
  Remains remains;
  for (size_t rank = 0; rank < groups.size(); ++rank) {
    remains.evidence.push_back(read_flight_recorder(
        dump(2, {{.seq = 1, .state = "scheduled", .group = std::to_string(rank)}}), "", static_cast<int>(rank)));
    std::vector<EvidenceGroup>& described = remains.evidence.back().groups;
    described.clear();
    for (size_t i = 0; i < groups.size(); ++i)
      described.push_back({.name = std::to_string(i), .description = {}, .size = 2, .ranks = groups[i], .members = {}});
  }
  remains.files = static_cast<int64_t>(groups.size());
  return remains;
}

TEST(Watched, TwoCirclesAreTwoFindings) {
  const std::vector<Finding> findings = judge(each_in_its_group({{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].ranks, (RankSet{0, 1}));
  EXPECT_EQ(findings[1].ranks, (RankSet{2, 3}));
}

TEST(Watched, WhatLeadsToRanksThatWaitForOneAnotherFollowsFromThem) {
  // Rank 0 waits in group 0 for rank 1, which waits in group 1 for rank 2, which waits in group 2 for rank 1.
  const std::vector<Finding> findings = judge(each_in_its_group({{0, 1}, {1, 2}, {1, 2}}));
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_EQ(findings[0].reference_ranks, RankSet{0});
  EXPECT_EQ(findings[0].severity, Severity::note);
  EXPECT_EQ(findings[1].severity, Severity::fault);
  EXPECT_EQ(findings[1].ranks, (RankSet{1, 2}));
  EXPECT_THAT(findings[1].message, HasSubstr("for rank 1: none of them can continue. All ranks"));
}

TEST(Watched, WhatLeadsToARankThatDoesNotComeFollowsFromThat) {
  // Rank 0 waits in group 0 for rank 1, which waits in group 1 for rank 2, which sleeps.
  Remains remains = each_in_its_group({{0, 1}, {1, 2}, {2, 3}});
  remains.evidence[2].calls.clear();
  remains.doing = {{.rank = 2, .kind = FindingKind::sleeping, .words = "sleeps"}};
  std::vector<Finding> findings = judge(remains);
  std::erase_if(findings, [](const Finding& each) { return each.verdict != Verdict::hang; });
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_EQ(findings[0].severity, Severity::note);
  EXPECT_EQ(findings[1].ranks, RankSet{2});
  EXPECT_EQ(findings[1].severity, Severity::fault);
}

TEST(Watched, ARootThatDiffersIsAMismatch) {
  Remains remains;
  for (int rank = 0; rank < 3; ++rank) {
    Evidence log{.source = EvidenceSource::collective_log, .origin = "log", .rank = rank};
    log.groups.push_back({.name = "0", .description = "default_pg", .size = 3, .ranks = {0, 1, 2}, .members = {}});
    EvidenceCall call{.group = "0", .group_description = "default_pg", .seq = 4, .op = "broadcast"};
    call.variant = rank == 1 ? "root 1" : "root 0";
    call.state = EvidenceState::started;
    call.input_shapes = {{4}};
    call.input_dtypes = {"float32"};
    log.calls.push_back(call);
    remains.evidence.push_back(log);
  }
  const Finding finding = judge(remains).back();
  EXPECT_EQ(finding.verdict, Verdict::op_mismatch);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_THAT(finding.message, AllOf(HasSubstr("rank 1 called broadcast float32 [4] root 1"),
                                     HasSubstr("ranks 0,2 called broadcast float32 [4] root 0")));
}

TEST(Watched, CallsThatDifferAreAMismatchThoughAllHaveEnded) {
  const auto judged = [](std::vector<uint64_t> signatures) {
    Remains remains{.files = 2};
    for (int rank = 0; rank < 2; ++rank) {
      Evidence log{.source = EvidenceSource::collective_log, .origin = "log", .rank = rank};
      log.groups.push_back({.name = "0", .description = "default_pg", .size = 2, .ranks = {0, 1}, .members = {}});
      EvidenceCall call{.group = "0", .group_description = "default_pg", .seq = 4, .op = "all_reduce"};
      call.signature = signatures[static_cast<size_t>(rank)];
      call.state = EvidenceState::completed;
      call.input_shapes = {{4}};
      call.input_dtypes = {rank == 1 ? "int32" : "float32"};
      log.calls.push_back(call);
      remains.evidence.push_back(log);
    }
    return judge(remains).back();
  };
  const Finding finding = judged({7, 8});
  EXPECT_EQ(finding.verdict, Verdict::dtype_mismatch);
  EXPECT_EQ(finding.inspector, "collectives");
  EXPECT_THAT(finding.message, HasSubstr("rank 1 called all_reduce int32 [4]"));
  EXPECT_EQ(judged({0, 0}).verdict, Verdict::ok) << "ranks do not compare calls";
  EXPECT_EQ(judged({7, 7}).verdict, Verdict::ok) << "what has to be alike is";
}

TEST(Watched, ARankWithoutALogIsNotComparedWithLogs) {
  Remains remains;
  for (int rank = 0; rank < 2; ++rank) {
    Evidence dump{.source = rank == 0 ? EvidenceSource::collective_log : EvidenceSource::flight_recorder,
                  .origin = "dump",
                  .rank = rank};
    dump.groups.push_back({.name = "0", .description = "default_pg", .size = 2, .ranks = {0, 1}, .members = {}});
    EvidenceCall call{.group = "0", .group_description = "default_pg", .seq = 1};
    call.op = rank == 0 ? "all_reduce" : "barrier";
    call.state = EvidenceState::started;
    dump.calls.push_back(call);
    remains.evidence.push_back(dump);
  }
  const Finding finding = judge(remains).back();
  EXPECT_EQ(finding.verdict, Verdict::hang);
  EXPECT_THAT(finding.message, HasSubstr("rank 1, of which there is no dump, may not have called"));
}

TEST(Watched, ThatARankHasEndedIsProven) {
  Remains remains = waiting(3, {0, 2});
  remains.doing = {{.rank = 1, .kind = FindingKind::finished, .words = "has finished", .ended = true}};
  const Finding finding = judge(remains).back();
  EXPECT_EQ(finding.verdict, Verdict::hang);
  EXPECT_EQ(finding.kind, FindingKind::finished);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_THAT(finding.message, Not(HasSubstr("Flight Recorder")));
}

TEST(Watched, OfARankThatDiedItIsNotKnownWhatItHadCalled) {
  Remains remains = waiting(3, {0, 2});
  remains.doing = {
      {.rank = 1, .kind = FindingKind::died, .words = "was killed by SIGKILL", .ended = true, .at_fault = true}};
  const std::vector<Finding> findings = judge(remains);
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& each) {
    return each.verdict == Verdict::hang &&
           each.message.find("rank 1 has ended and may not have called") != std::string::npos;
  }));
}

TEST(Watched, WaitingForRanksThatTheLauncherEndedFollowsFromTheFailureOfOne) {
  Remains remains = waiting(4, {2, 3});
  RankDoing other{.rank = 1, .kind = FindingKind::died, .words = "was killed by SIGTERM", .ended = true};
  remains.doing = {
      {.rank = 0, .kind = FindingKind::died, .words = "was killed by SIGKILL", .ended = true, .at_fault = true}, other};
  const auto faults = [&] {
    std::vector<Finding> findings = judge(remains);
    std::erase_if(findings, [](const Finding& each) { return each.severity != Severity::fault; });
    return findings;
  };
  ASSERT_THAT(faults(), SizeIs(1));
  EXPECT_EQ(faults()[0].message, "rank 0 was killed by SIGKILL");
  // A rank that keeps others waiting until one gives up and the launcher ends it is still the cause.
  const auto names_rank_1 = [](const Finding& each) {
    return each.verdict == Verdict::hang && each.message.find("ranks 0-1 have ended") != std::string::npos;
  };
  const std::vector<RankDoing> both = remains.doing;
  remains.doing.front().words = "was killed by SIGABRT";
  EXPECT_TRUE(std::ranges::any_of(faults(), names_rank_1));
  remains.doing = {other};
  remains.errors = {{.rank = 0, .type = "DistBackendError", .message = "Connection closed by peer [127.0.0.1]:7"}};
  remains.evidence = waiting(4, {0, 2, 3}).evidence;
  ASSERT_THAT(faults(), SizeIs(1));
  EXPECT_EQ(faults()[0].ranks, RankSet{1});
  remains.errors = {};
  remains.evidence = waiting(4, {2, 3}).evidence;
  remains.doing = both;
  // Without the failure, that they have ended is all that is known.
  remains.doing.front() = other;
  remains.doing.front().rank = 0;
  ASSERT_THAT(faults(), SizeIs(1));
  EXPECT_EQ(faults()[0].verdict, Verdict::hang);
}

TEST(Watched, ARankThatHadCalledItBeforeItEndedIsNotMissing) {
  Remains remains = waiting(3, {0, 2});
  remains.doing = {
      {.rank = 1, .kind = FindingKind::finished, .words = "has finished", .ended = true, .calls = {{"0", 3}}}};
  for (const Finding& finding : judge(remains)) {
    EXPECT_NE(finding.kind, FindingKind::finished) << finding.message;
    EXPECT_NE(finding.ranks, RankSet{1}) << finding.message;
  }
}

TEST(Watched, ADeathIsTheCauseOfItsPeersErrors) {
  Remains remains;
  remains.files = 2;
  remains.errors = {{.rank = 0,
                     .type = "RuntimeError",
                     .message = "Connection closed by peer [127.0.0.1]:7",
                     .frames = {{"step", "train.py", 18}}}};
  remains.doing = {
      {.rank = 1, .kind = FindingKind::died, .words = "was killed by SIGKILL", .ended = true, .at_fault = true}};
  const std::vector<Finding> findings = judge(remains);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].severity, Severity::note);
  EXPECT_EQ(findings[1].kind, FindingKind::died);
  EXPECT_EQ(findings[1].ranks, RankSet{1});
  EXPECT_EQ(findings[1].message, "rank 1 was killed by SIGKILL");
}

TEST(Watched, ARankThatFinishedIsTheCauseOfItsPeersErrors) {
  Remains remains;
  remains.files = 2;
  remains.errors = {{.rank = 0,
                     .type = "RuntimeError",
                     .message = "Connection closed by peer [127.0.0.1]:7",
                     .frames = {{"step", "train.py", 18}}}};
  remains.doing = {{.rank = 1, .kind = FindingKind::finished, .words = "has finished", .ended = true}};
  Finding finding = judge(remains).back();
  EXPECT_EQ(finding.verdict, Verdict::hang);
  EXPECT_EQ(finding.message, "rank 1 has finished, and rank 0 was still in a collective with it (train.py:18 in step)");
  // An exception of its own explains it instead.
  remains.errors.push_back({.rank = 2, .type = "ValueError", .message = "no"});
  finding = judge(remains).back();
  EXPECT_EQ(finding.ranks, RankSet{2});
  EXPECT_EQ(finding.kind, FindingKind::threw);
}

TEST(Watched, DeathsOfSeveralRanksAreOneSentence) {
  Remains remains;
  for (const int rank : {0, 1})
    remains.doing.push_back({.rank = rank,
                             .kind = FindingKind::finished,
                             .words = "has finished, and its process was killed by SIGSEGV",
                             .ended = true,
                             .at_fault = true});
  EXPECT_EQ(judge(remains).back().message, "ranks 0-1 have finished, and their processes were killed by SIGSEGV");
}

TEST(Watched, AnErrorOfAGroupIsNotThatOfAGroupWhoseNumberBeginsAlike) {
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 2, .op = "broadcast", .state = "scheduled", .group = "1"}}));
  job.write("trace_rank_1", dump(2, {{.seq = 2, .state = "scheduled", .group = "1"}}));
  Remains remains = read_remains({job.str()});
  const std::string error = "All ranks of a group must make the same calls in the same order: as #2 of group ";
  remains.errors.push_back({.rank = 0, .type = "CollectiveMismatch", .message = error + "12 (train.py:7)"});
  EXPECT_THAT(judge(remains).back().message, HasSubstr("#2 of group 1 is not the same collective"));
  remains.errors.push_back({.rank = 1, .type = "CollectiveMismatch", .message = error + "1 (train.py:3)"});
  EXPECT_THAT(judge(remains).back().message, HasSubstr("train.py:3"));
}

TEST(Watched, ErrorsOfCommunicatorsAreOwnOrOfAnotherRank) {
  Remains remains;
  remains.files = 1;
  Evidence errors;
  errors.source = EvidenceSource::async_error;
  errors.errors = {{.rank = 1, .group = "default", .time_ns = 1, .error = "system error"},
                   {.rank = 1, .group = "default", .time_ns = 2, .error = ""}};
  remains.evidence = {errors};
  EXPECT_NE(judge(remains).back().severity, Severity::fault) << "a new communicator took its place";
  remains.evidence[0].errors = {{.rank = 0, .group = "default", .time_ns = 1, .error = "remote error", .remote = true}};
  auto findings = judge(remains);
  EXPECT_EQ(findings[0].ranks, RankSet{0});
  EXPECT_THAT(findings.back().message, HasSubstr("follows from"));
  remains.evidence[0].errors.push_back({.rank = 1, .group = "default", .time_ns = 2, .error = "system error"});
  findings = judge(remains);
  EXPECT_EQ(findings.back().severity, Severity::fault);
  EXPECT_EQ(findings.back().ranks, RankSet{1});
  // Each rank may have a file of its own, and one of them was the first.
  remains.evidence.push_back(errors);
  remains.evidence[1].errors = {remains.evidence[0].errors[1]};
  remains.evidence[0].errors.pop_back();
  EXPECT_EQ(judge(remains).size(), 1U);
  EXPECT_EQ(judge(remains).back().ranks, RankSet{1});
}

TEST(StackText, ReadsFaulthandlerAndRanksInTheLines) {
  Remains remains;
  EXPECT_TRUE(
      read_stack_text("[default1]:Fatal Python error: Segmentation fault\n"
                      "[default0]:noise\n"
                      "[default1]:\n"
                      "[default1]:Thread 0x00007f1 (most recent call first):\n"
                      "[default1]:  File \"/job/w.py\", line 3 in work\n"
                      "[default1]:\n"
                      "[default1]:Current thread 0x00007f2 (most recent call first):\n"
                      "[default1]:  File \"/job/op.py\", line 8 in call\n"
                      "[default1]:  File \"/job/train.py\", line 2 in <module>\n"
                      "[default1]:\n"
                      "[default1]:Extension modules: numpy\n",
                      "log", std::nullopt, remains));
  ASSERT_THAT(remains.stacks, SizeIs(2));
  EXPECT_TRUE(remains.stacks[1].is_main);
  EXPECT_EQ(remains.stacks[1].rank, 1);
  EXPECT_THAT(remains.stacks[1].frames,
              ElementsAre(EvidenceFrame{"call", "/job/op.py", 8}, EvidenceFrame{"<module>", "/job/train.py", 2}));
  ASSERT_THAT(remains.errors, SizeIs(1));
  EXPECT_EQ(remains.errors[0].message, "Segmentation fault");
  EXPECT_THAT(remains.errors[0].frames, SizeIs(2));
}

TEST(StackText, TorchsNumberStandsAfterTorchruns) {
  Remains remains;
  EXPECT_TRUE(
      read_stack_text("[default1]:[rank5]: Traceback (most recent call last):\n"
                      "[default1]:[rank5]:   File \"/job/a.py\", line 1, in f\n"
                      "[default1]:[rank5]: ValueError: x\n",
                      "console.log", std::nullopt, remains));
  ASSERT_THAT(remains.errors, SizeIs(1));
  EXPECT_EQ(remains.errors[0].rank, 5);
  EXPECT_EQ(remains.errors[0].type, "ValueError");
}

TEST(StackText, ReadsTheStackOfOneThread) {
  Remains remains;
  EXPECT_TRUE(
      read_stack_text("Stack (most recent call first):\n"
                      "  File \"/job/op.py\", line 8 in call\n",
                      "rank 1", 1, remains));
  ASSERT_THAT(remains.stacks, SizeIs(1));
  EXPECT_TRUE(remains.stacks[0].is_main);
  EXPECT_THAT(remains.stacks[0].frames, ElementsAre(EvidenceFrame{"call", "/job/op.py", 8}));
}

TEST(StackText, TheLastExceptionOfAChainCounts) {
  Remains remains;
  read_stack_text(std::string(kTraceback) +
                      "\nDuring handling of the above exception, another exception occurred:\n\n"
                      "Traceback (most recent call last):\n"
                      "  File \"/job/train.py\", line 44, in step\n"
                      "RuntimeError: no step\n",
                  "log", 3, remains);
  ASSERT_THAT(remains.errors, SizeIs(1));
  EXPECT_EQ(remains.errors[0].type, "RuntimeError");
  EXPECT_EQ(remains.errors[0].rank, 3);
}

constexpr const char* kGloo =
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4. \n";

TEST(StackText, AnExceptionOfCppThatNobodyCatchesIsTheRanks) {
  Remains remains;
  EXPECT_TRUE(
      read_stack_text("[default1]:terminate called after throwing an instance of 'std::out_of_range'\n"
                      "[default0]:loss 3\n"
                      "[default1]:  what():  vector::at\n",
                      "log", std::nullopt, remains));
  ASSERT_THAT(remains.errors, SizeIs(1));
  EXPECT_EQ(remains.errors[0].rank, 1);
  EXPECT_EQ(remains.errors[0].type, "std::out_of_range");
  EXPECT_EQ(remains.errors[0].message, "vector::at");
}

TEST(Remains, GlooThatGetsTooManyBytesPointsToTheCalls) {
  const Folder job;
  job.write("attempt_0/0/stderr.log", kGloo);
  job.write("attempt_0/1/stderr.log",
            "Traceback (most recent call last):\n  File \"/job/train.py\", line 9, in <module>\n"
            "RuntimeError: Read error [127.0.0.1]:2834: Connection reset by peer\n");
  const Finding alone = last_of({job.str()});
  EXPECT_EQ(alone.severity, Severity::fault);
  EXPECT_EQ(alone.verdict, Verdict::op_mismatch);
  EXPECT_EQ(alone.ranks, RankSet{0});
  EXPECT_THAT(alone.message, AllOf(HasSubstr("8 vs 4"), HasSubstr("init_process_group(\"lockstep\")")));
  job.write("trace_rank_0", dump(2, {{.seq = 1}, {.seq = 2, .state = "started", .shape = {4}}}));
  job.write("trace_rank_1", dump(2, {{.seq = 1}, {.seq = 2, .state = "started", .shape = {5}}}));
  const auto findings = judge(read_remains({job.str()}));
  EXPECT_EQ(findings.back().verdict, Verdict::shape_mismatch);
  EXPECT_THAT(findings.back().message, HasSubstr("#2 of default_pg"));
  EXPECT_EQ(std::ranges::count(findings, Severity::fault, &Finding::severity), 1);
  EXPECT_THAT(findings[findings.size() - 2].message, HasSubstr("that follows from the calls below"));
}

TEST(StackText, OrdinaryLinesAreNothing) {
  Remains remains;
  EXPECT_FALSE(read_stack_text("[W1122 20:44:56.45 logger.cpp:329] Warning\nloss: 3\n[1/2]: x\nThread 4\n    a (b)\n",
                               "log", std::nullopt, remains));
  EXPECT_THAT(remains.errors, IsEmpty());
  EXPECT_THAT(remains.stacks, IsEmpty());
}

TEST(JobFiles, TheRankIsInTheNameOfTheFileOrOfAFolder) {
  EXPECT_EQ(rank_in_path("/tmp/comm_lib_trace_rank_3"), 3);
  EXPECT_EQ(rank_in_path("/tmp/run-12/attempt_0/5/stderr.log"), 5);
  EXPECT_EQ(rank_in_path("/tmp/attempt_0/5/error.json"), 5);
  EXPECT_EQ(rank_in_path("logs/rank-11/out.txt"), 11);
  EXPECT_EQ(rank_in_path("logs/rank7.log"), 7);
  EXPECT_EQ(rank_in_path("trace_4.json"), 4);
  EXPECT_EQ(rank_in_path("train.log"), std::nullopt);
  EXPECT_EQ(rank_in_path("slurm/4711/train.log"), std::nullopt);
  EXPECT_EQ(rank_in_path("4711/logs/stderr.log"), std::nullopt);
  EXPECT_EQ(rank_in_path("2026-11-22/train-99.log"), std::nullopt);
  EXPECT_EQ(rank_in_path("rank12345678901234567890"), std::nullopt);
}

TEST(JobFiles, WhatIsNotReadIsNamedAndTheOthersCount) {
  const Folder job;
  job.write("trace_rank_0", dump(2, {{.seq = 1}}));
  const std::string cut_off = job.write("trace_rank_1", dump(2, {{.seq = 1}}).substr(0, 60));
  const std::string empty = job.write("empty", "");
  job.write("notes.txt", "nothing of interest\n");
  job.write("weights.bin", std::string("\x01\x00\x02", 3));
  const Remains remains = read_remains({job.str(), empty});
  EXPECT_EQ(remains.files, 1);
  EXPECT_THAT(remains.unread, SizeIs(2));
  EXPECT_THAT(remains.unread[0], HasSubstr(cut_off));
  EXPECT_THAT(remains.unread[1], HasSubstr("is empty"));
  EXPECT_THROW(read_remains({job.str() + "/absent"}), UnreadableEvidence);
}

TEST(JobFiles, AFileThatIsTooLargeForAThreadsShareIsReadAlone) {
  const Folder job;
  std::vector<Call> calls;
  for (int seq = 1; seq <= 100; ++seq) calls.push_back({.seq = seq});
  std::vector<std::string> paths;
  for (int rank = 0; rank < 4; ++rank) paths.push_back(job.write("trace_rank_" + std::to_string(rank), dump(4, calls)));
  uint64_t enough = 1;  // the smallest power of two: half of it does not suffice
  const auto suffices = [&] {
    try {
      read_evidence_file(paths.front(), ReadingLimit(enough));
      return true;
    } catch (const EvidenceTooLarge&) {
      return false;
    }
  };
  while (!suffices()) enough *= 2;
  const Remains remains = read_remains(paths, ReadingLimit(enough));
  EXPECT_THAT(remains.evidence, SizeIs(4));
  EXPECT_THAT(remains.unread, IsEmpty());
}

TEST(JobFiles, SmallFilesThatStandForMuchAreNamed) {
  const Folder job;
  const std::string lists = job.write("lists", "\x80\x02" + std::string(100'000, ']'));
  job.write("others/weights.pkl", "\x80\x02" + std::string(100'000, ']'));
  const Remains remains = read_remains({lists, job.str() + "/others"}, ReadingLimit(size_t{1} << 20));
  EXPECT_THAT(remains.unread, ElementsAre(HasSubstr("lists: its values take more memory than is given")));
  const std::string pipe = job.str() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(read_remains({pipe}), UnreadableEvidence);
  EXPECT_EQ(read_remains({job.str()}).files, 0) << "and the pipe is passed over in a folder";
}

TEST(JobFiles, ALogMayBeginWithADictionaryAndAFolderHaveOtherJson) {
  const Folder job;
  job.write("stdout_rank1.log",
            "{'lr': 0.1}\nTraceback (most recent call last):\n  File \"/job/a.py\", line 1, in f\nValueError: x\n");
  const std::string settings = job.write("settings.json", R"({"lr": 0.1})");
  const Remains remains = read_remains({job.str()});
  ASSERT_THAT(remains.errors, SizeIs(1));
  EXPECT_EQ(remains.errors[0].rank, 1);
  EXPECT_THAT(remains.unread, IsEmpty());
  EXPECT_THAT(read_remains({settings}).unread, SizeIs(1));
}

TEST(JobFiles, OfTwoDumpsOfARankTheNewestCounts) {
  const Folder job;
  const std::string old = job.write("old/trace_rank_0", dump(1, {{.seq = 1}}));
  job.write("new/trace_rank_0", dump(1, {{.seq = 1}, {.seq = 2, .state = "scheduled"}}));
  fs::last_write_time(old, fs::last_write_time(old) - std::chrono::hours(1));
  const Remains remains = read_remains({job.str()});
  ASSERT_THAT(remains.evidence, SizeIs(1));
  EXPECT_THAT(remains.evidence[0].calls, SizeIs(2));
  EXPECT_THAT(remains.unread, ElementsAre(HasSubstr("older dump of rank 0")));
}

TEST(JobFiles, OfALongDumpTheEndIsKept) {
  const Folder job;
  std::vector<Call> calls;
  for (int seq = 1; seq <= 500; ++seq) calls.push_back({.seq = seq, .state = seq == 10 ? "scheduled" : "completed"});
  const Remains remains = read_remains({job.write("trace_rank_0", dump(1, calls))});
  ASSERT_THAT(remains.evidence[0].calls, SizeIs(65));
  EXPECT_EQ(remains.evidence[0].calls.front().seq, 10);
  EXPECT_EQ(remains.evidence[0].calls.back().seq, 500);
}

TEST(Remains, TheFrameOfTheProgramIsNotOneOfALibrary) {
  const auto file = [](std::initializer_list<const char*> files) {
    std::vector<EvidenceFrame> frames;
    for (const char* each : files) frames.push_back({.function = "f", .file = each, .line = 1});
    return program_frame(frames)->file;
  };
  EXPECT_EQ(file({"torch/nn/modules/module.py", "/home/me/pytorch/train.py"}), "/home/me/pytorch/train.py");
  EXPECT_EQ(file({"/src/pytorch/torch/nn/parallel/distributed.py", "/home/me/torch/train.py"}),
            "/home/me/torch/train.py");
  EXPECT_EQ(file({"<frozen importlib._bootstrap>", "/x/site-packages/torch/a.py"}), "/x/site-packages/torch/a.py");
}

TEST(ErrorFile, DamagedOnesAreErrorsThatNameThem) {
  const std::string text =
      json({{"message", {{"message", "ValueError: x"}, {"extraInfo", {{"timestamp", "12"}}}}}}).dump();
  EXPECT_EQ(read_error_file(text, "error.json", 1).time_s, 12);
  for (size_t end = 1; end < text.size(); ++end)
    EXPECT_THROW(read_error_file(std::string_view(text).substr(0, end), "error.json", 1), UnreadableEvidence);
  EXPECT_THROW(read_error_file(R"({"message": 7})", "error.json", 1), UnreadableEvidence);
  EXPECT_THROW(read_error_file(R"({"message": {"message": "x", "extraInfo": []}})", "error.json", 1),
               UnreadableEvidence);
  EXPECT_EQ(read_error_file(R"({"message": "killed"})", "error.json", 1).message, "killed");
}

TEST(Judge, NothingOrNothingWrongIsSaid) {
  EXPECT_EQ(judge({}).back().verdict, Verdict::unsupported);
  const Folder job;
  job.write("trace_rank_0", dump(1, {{.seq = 1}}));
  const Finding ok = last_of({job.str()});
  EXPECT_EQ(ok.verdict, Verdict::ok);
  EXPECT_THAT(ok.message, HasSubstr("by the dumps of rank 0"));
  const Folder nameless;
  nameless.write("dump.json", dump(1, {{.seq = 1, .state = "scheduled"}}));
  EXPECT_EQ(last_of({nameless.str()}).verdict, Verdict::unsupported);
}

TEST(Stacks, SayWhoWaitsForWhom) {
  const RankDoing odd = {.rank = 2, .kind = FindingKind::lock, .words = "waits for a lock"};
  const Finding last =
      judge(looked_at({waits_in(0, "all_reduce"), waits_in(1, "all_reduce"), odd, waits_in(3, "all_reduce")})).back();
  EXPECT_EQ(last.severity, Severity::fault);
  EXPECT_EQ(last.kind, FindingKind::lock);
  EXPECT_EQ(last.ranks, RankSet{2});
  EXPECT_EQ(last.reference_ranks, (RankSet{0, 1, 3}));
  EXPECT_EQ(last.where, "train.py:7 in step");
  EXPECT_THAT(last.message,
              AllOf(HasSubstr("ranks 0-1,3 wait in all_reduce (train.py:7 in step); rank 2 waits for a lock "
                              "(train.py:7 in step)"),
                    HasSubstr("by stacks")));
}

TEST(Stacks, NameTheRankThatIsInAnotherCollective) {
  const Finding last =
      judge(looked_at({waits_in(0, "all_reduce"), waits_in(1, "barrier"), waits_in(2, "all_reduce")})).back();
  EXPECT_EQ(last.kind, FindingKind::other_collective);
  EXPECT_EQ(last.ranks, RankSet{1});
  EXPECT_THAT(last.message, HasSubstr("rank 1 waits in barrier (train.py:9 in step): if these are calls of one group"));
}

TEST(Stacks, ARankThatIsGoneIsTheCause) {
  const RankDoing slow = {.rank = 1, .kind = FindingKind::computing, .words = "computes"};
  const RankDoing gone = {.rank = 2, .kind = FindingKind::died, .words = "was killed by SIGKILL", .ended = true};
  const Finding last = judge(looked_at({waits_in(0, "all_reduce"), slow, gone})).back();
  EXPECT_EQ(last.kind, FindingKind::died);
  EXPECT_EQ(last.ranks, (RankSet{1, 2}));
}

TEST(Stacks, ProveNothingOfRanksThatMove) {
  RankDoing moves = waits_in(1, "all_reduce");
  moves.has_moved = true;
  const Finding last = judge(looked_at({waits_in(0, "all_reduce"), moves})).back();
  EXPECT_EQ(last.severity, Severity::note);
  EXPECT_EQ(last.verdict, Verdict::unsupported);
  EXPECT_THAT(last.message, HasSubstr("no hang is proven by this: ranks 0-1 wait in all_reduce"));
}

/// A running job in which ranks 0 and 2 alone have answered with a dump.
Remains partly_dumped(const std::vector<RankDoing>& doing) {
  Remains remains = looked_at(doing);
  for (const int rank : {0, 2}) {
    EvidenceCall call{.group = "0", .group_description = "default_pg", .seq = 4, .op = "all_reduce"};
    call.state = EvidenceState::started;
    call.frames = {{.function = "step", .file = "train.py", .line = 7}};
    Evidence& dump = remains.evidence.emplace_back();
    dump.source = EvidenceSource::flight_recorder;
    dump.rank = rank;
    dump.groups.push_back({.name = "0", .ranks = {0, 1, 2, 3}});
    dump.calls.push_back(call);
  }
  return remains;
}

TEST(Stacks, SayThatRanksWithoutADumpWaitAsWell) {
  const RankDoing odd = {.rank = 3, .kind = FindingKind::lock, .words = "waits for a lock"};
  const Finding last =
      judge(partly_dumped({waits_in(0, "all_reduce"), waits_in(1, "all_reduce"), waits_in(2, "all_reduce"), odd}))
          .back();
  EXPECT_EQ(last.ranks, RankSet{3});
  EXPECT_EQ(last.reference_ranks, (RankSet{0, 1, 2}));
  EXPECT_EQ(last.kind, FindingKind::lock);
  EXPECT_THAT(last.message,
              AllOf(HasSubstr("ranks 0,2 wait in all_reduce #4 of default_pg (train.py:7 in step), which rank 3, of "
                              "which there is no dump, may not have called"),
                    HasSubstr("; rank 1 waits there, too, by its stack, which does not tell the number of the call"),
                    HasSubstr("rank 3 waits for a lock")));
  // At another line it is another call.
  const Finding other =
      judge(partly_dumped({waits_in(0, "all_reduce"), waits_in(1, "barrier"), waits_in(2, "all_reduce"), odd})).back();
  EXPECT_EQ(other.ranks, (RankSet{1, 3}));
}

TEST(Stacks, WithoutSomeDumpsNobodyIsBlamedWhereAllRanksWait) {
  const Finding last = judge(partly_dumped({waits_in(0, "all_reduce"), waits_in(1, "all_reduce"),
                                            waits_in(2, "all_reduce"), waits_in(3, "all_reduce")}))
                           .back();
  EXPECT_EQ(last.severity, Severity::fault);
  EXPECT_EQ(last.kind, FindingKind::communicator);
  EXPECT_EQ(last.ranks, RankSet::all(4));
  EXPECT_THAT(last.message,
              AllOf(HasSubstr("ranks 1,3 wait there, too, by their stacks"), Not(HasSubstr("may not have called"))));
}

TEST(Stacks, SayWhichRanksAreElsewhere) {
  Remains remains = looked_at({waits_in(0, "all_reduce"), waits_in(1, "all_reduce")});
  remains.look->world = RankSet::all(4);
  remains.look->elsewhere = RankSet{2, 3};
  const std::vector<Finding> findings = judge(remains);
  EXPECT_THAT(findings.front().message, HasSubstr("ranks 2-3 are on other machines"));
  EXPECT_THAT(findings.back().message, HasSubstr("a rank on another machine may not have called it"));
}

}  // namespace
}  // namespace lockstep::inspect
