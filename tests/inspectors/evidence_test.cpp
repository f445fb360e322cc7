// Readers of what NCCL and c10d say: the files of tests/inspectors/evidence, and altered ones.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/json_value.h"
#include "inspectors/evidence/ras.h"
#include "inspectors/evidence/read.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string evidence_file(const std::string& name) { return LOCKSTEP_TEST_EVIDENCE "/" + name; }

std::string bytes_of(const std::string& name) {
  std::ifstream file(evidence_file(name), std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <typename Call>
std::string problem_of(Call&& call) {
  try {
    call();
  } catch (const UnreadableEvidence& error) {
    return error.what();
  }
  return "none";
}

// ---- Flight Recorder ------------------------------------------------------------------------------------------------

TEST(FlightRecorder, ReadsTheCallsOfARank) {
  const Evidence dump = read_flight_recorder_file(evidence_file("nccl_trace_rank_0.json"));
  EXPECT_EQ(dump.source, EvidenceSource::flight_recorder);
  EXPECT_EQ(dump.version, "2.10");
  EXPECT_EQ(dump.rank, 0);
  ASSERT_EQ(dump.calls.size(), 5u);
  const EvidenceCall& last = dump.calls[2];
  EXPECT_EQ(last.op, "all_reduce");
  EXPECT_EQ(last.backend, "nccl");
  EXPECT_EQ(last.group, "0");
  EXPECT_EQ(last.group_description, "default_pg");
  EXPECT_EQ(last.seq, 17);
  EXPECT_EQ(last.state, EvidenceState::started);
  EXPECT_THAT(last.input_shapes, ElementsAre(ElementsAre(256, 64)));
  EXPECT_THAT(last.input_dtypes, ElementsAre("float32"));
  EXPECT_EQ(last.timeout_ms, 600000);
  EXPECT_FALSE(last.retired);
  EXPECT_EQ(last.started_ns - last.created_ns, 2'000'000);
  EXPECT_EQ(last.completed_ns, 0);
  EXPECT_EQ(dump.calls[0].state, EvidenceState::completed);
  EXPECT_EQ(dump.calls[0].duration_ms, 3.0);
  EXPECT_EQ(dump.calls[3].op, "all_gather_into_tensor");
  EXPECT_THAT(dump.calls[3].output_dtypes, ElementsAre("bfloat16", "bfloat16"));
}

TEST(FlightRecorder, AMessageHasAPeerAndANumberOfItsOwn) {
  const EvidenceCall sent = read_flight_recorder_file(evidence_file("nccl_trace_rank_0.json")).calls.back();
  EXPECT_TRUE(sent.point_to_point);
  EXPECT_EQ(sent.op, "send");
  EXPECT_EQ(sent.peer, 1);
  EXPECT_EQ(sent.seq, 2);
  const EvidenceCall received = read_flight_recorder_file(evidence_file("nccl_trace_rank_1.json")).calls.back();
  EXPECT_EQ(received.op, "recv");
  EXPECT_EQ(received.peer, 0);
}

TEST(FlightRecorder, ReadsGroupsAndHowFarARankIsInThem) {
  const Evidence dump = read_flight_recorder_file(evidence_file("nccl_trace_rank_3.json"));
  ASSERT_EQ(dump.groups.size(), 2u);
  const EvidenceGroup* world = dump.group("0");
  ASSERT_TRUE(world);
  EXPECT_EQ(world->description, "default_pg");
  EXPECT_THAT(world->ranks, ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(world->members.size(), 1u);
  EXPECT_EQ(world->members[0].rank, 3);
  EXPECT_EQ(world->members[0].last_scheduled, 17);
  EXPECT_EQ(world->members[0].last_started, 16);
  EXPECT_EQ(world->members[0].last_completed, 16);
  EXPECT_THAT(dump.group("7")->ranks, ElementsAre(0, 1));
}

std::vector<EvidenceRow> rows_of(const std::vector<Evidence>& dumps) {
  std::vector<const Evidence*> pointers;
  for (const Evidence& each : dumps) pointers.push_back(&each);
  return side_by_side(pointers);
}

TEST(FlightRecorder, SideBySideShowsWhoIsMissing) {
  std::vector<Evidence> dumps;
  for (int rank = 0; rank < 4; ++rank)
    dumps.push_back(read_flight_recorder_file(evidence_file("nccl_trace_rank_" + std::to_string(rank) + ".json")));
  const auto rows = rows_of(dumps);
  ASSERT_EQ(rows.size(), 4u);  // 15 to 17 of group 0, 4 of group 7; messages are left out
  const EvidenceRow& last = rows[2];
  EXPECT_EQ(last.seq, 17);
  EXPECT_EQ(last.op, "all_reduce");
  EXPECT_EQ(last.missing, RankSet{2});
  EXPECT_THAT(last.unknown, IsEmpty());
  EXPECT_EQ(last.in_state(EvidenceState::started), (RankSet{0, 1}));
  EXPECT_EQ(last.in_state(EvidenceState::scheduled), RankSet{3});
  EXPECT_EQ(rows[1].in_state(EvidenceState::completed), (RankSet{0, 1, 2, 3}));
  EXPECT_EQ(rows[3].group, "7");
  EXPECT_THAT(rows[3].missing, IsEmpty());
}

TEST(FlightRecorder, ARankWithoutADumpIsUnknownAndNotMissing) {
  std::vector<Evidence> dumps;
  for (const int rank : {0, 3})
    dumps.push_back(read_flight_recorder_file(evidence_file("nccl_trace_rank_" + std::to_string(rank) + ".json")));
  const auto rows = rows_of(dumps);
  EXPECT_THAT(rows[2].missing, IsEmpty());
  EXPECT_EQ(rows[2].unknown, (RankSet{1, 2}));
}

TEST(FlightRecorder, ARingThatHasLostItsOldRecordsIsUnknownForThem) {
  std::vector<Evidence> dumps;
  for (const int rank : {0, 1})
    dumps.push_back(read_flight_recorder_file(evidence_file("nccl_trace_rank_" + std::to_string(rank) + ".json")));
  std::erase_if(dumps[1].calls, [](const EvidenceCall& call) { return call.group == "0" && call.seq < 17; });
  const auto rows = rows_of(dumps);
  EXPECT_TRUE(rows[0].unknown.contains(1));
  EXPECT_FALSE(rows[0].missing.contains(1));
}

TEST(FlightRecorder, AGroupThatWasMadeAgainHasTheNewestCallsOnly) {
  const auto call = [](const std::string& group, int64_t seq, bool message = false) {
    EvidenceCall one;
    one.group = group;
    one.seq = seq;
    one.point_to_point = message;
    return one;
  };
  Evidence dump;
  dump.calls = {call("0", 1), call("1", 7), call("0", 2), call("0", 1, true), call("0", 3), call("0", 1, true),
                call("0", 1), call("1", 8), call("0", 2), call("2", 1),       call("2", 1)};
  drop_destroyed_groups(dump);
  std::vector<std::string> left;
  for (const EvidenceCall& each : dump.calls)
    left.push_back(each.group + "#" + std::to_string(each.seq) + (each.point_to_point ? " message" : ""));
  EXPECT_THAT(left, ElementsAre("1#7", "0#1 message", "0#1", "1#8", "0#2", "2#1"));
}

TEST(FlightRecorder, ReadsThePickleThatLibTorchWrites) {
  const Evidence pickle = read_flight_recorder_file(evidence_file("gloo_trace_rank_0"));
  const Evidence json = read_flight_recorder_file(evidence_file("gloo_trace_rank_0.json"));
  EXPECT_EQ(pickle.rank, 0);
  EXPECT_EQ(pickle.version, json.version);
  ASSERT_EQ(pickle.calls.size(), json.calls.size());
  ASSERT_FALSE(pickle.calls.empty());
  for (size_t i = 0; i < json.calls.size(); ++i) {
    EXPECT_EQ(pickle.calls[i].op, json.calls[i].op);
    EXPECT_EQ(pickle.calls[i].group, json.calls[i].group);
    EXPECT_EQ(pickle.calls[i].seq, json.calls[i].seq);
    EXPECT_EQ(pickle.calls[i].state, json.calls[i].state);
    EXPECT_EQ(pickle.calls[i].input_shapes, json.calls[i].input_shapes);
    EXPECT_EQ(pickle.calls[i].input_dtypes, json.calls[i].input_dtypes);
    EXPECT_EQ(pickle.calls[i].created_ns, json.calls[i].created_ns);
  }
  EXPECT_EQ(pickle.calls.back().op, "all_reduce");
  EXPECT_EQ(pickle.calls.back().backend, "gloo");
  EXPECT_EQ(pickle.calls.back().state, EvidenceState::scheduled);
  EXPECT_EQ(pickle.calls.front().state, EvidenceState::completed) << "Gloo retires what has ended";
  EXPECT_EQ(pickle.group("default")->members.at(0).last_completed, 4);
  EXPECT_EQ(pickle.group("default")->members.at(0).last_started, std::nullopt);
}

TEST(FlightRecorder, SideBySideOfRecordedDumpsNamesTheRankThatStopped) {
  const std::vector<Evidence> dumps = {read_flight_recorder_file(evidence_file("gloo_trace_rank_0")),
                                       read_flight_recorder_file(evidence_file("gloo_trace_rank_1"))};
  const auto rows = rows_of(dumps);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.back().missing, RankSet{1});
  for (size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_THAT(rows[i].missing, IsEmpty()) << i;
}

TEST(FlightRecorder, DumpsOfNcclFromADevice) {
  const std::vector<Evidence> skipped = {read_flight_recorder_file(evidence_file("nccl_recorded_rank_0")),
                                         read_flight_recorder_file(evidence_file("nccl_recorded_rank_1"))};
  std::vector<RankSet> missing;
  for (const auto& row : rows_of(skipped))
    if (!row.missing.empty()) missing.push_back(row.missing);
  EXPECT_THAT(missing, ElementsAre(RankSet{1}));
  EXPECT_EQ(skipped[0].calls.back().op, "all_reduce");
  EXPECT_EQ(skipped[0].calls.back().state, EvidenceState::started);
  EXPECT_EQ(skipped[0].group("0")->members.at(0).last_completed, 6);

  const Evidence behind = read_flight_recorder_file(evidence_file("nccl_recorded_rank_0.json")),
                 waits = read_flight_recorder_file(evidence_file("nccl_recorded_rank_1.json"));
  EXPECT_EQ(behind.calls.back().seq, 8);
  EXPECT_EQ(behind.calls.back().state, EvidenceState::scheduled);
  EXPECT_EQ(waits.calls.back().seq, 8);
  EXPECT_EQ(waits.calls.back().state, EvidenceState::started);
}

TEST(FlightRecorder, AnotherVersionIsRefusedByName) {
  std::string text = bytes_of("nccl_trace_rank_0.json");
  text.replace(text.find("\"2.10\""), 6, "\"3.0\"");
  EXPECT_THAT(problem_of([&] { read_flight_recorder(text, "trace_0"); }),
              HasSubstr("trace_0 is of version 3.0 of the Flight Recorder's format"));
}

TEST(FlightRecorder, NamesTheFieldThatIsWrong) {
  std::string text = bytes_of("nccl_trace_rank_2.json");
  text.replace(text.find("\"completed\""), 11, "\"vanished\" ");
  EXPECT_THAT(problem_of([&] { read_flight_recorder(text, "trace_2"); }),
              HasSubstr("trace_2.entries[0].state is the unknown state 'vanished'"));
}

TEST(FlightRecorder, NumbersBeyond64BitsAreRefused) {
  std::string text = bytes_of("nccl_trace_rank_2.json");
  const size_t at = text.find("\"collective_seq_id\": ") + 21;
  text.replace(at, 2, "18446744073709551615");
  EXPECT_THAT(problem_of([&] { read_flight_recorder(text, "trace_2"); }), HasSubstr("is too large a number"));
}

// ---- RAS ------------------------------------------------------------------------------------------------------------

TEST(FlightRecorder, TextsThatAPickleRepeatsHaveALimit) {
  // One text of 1 MB, as a list of 10 references to it (protocol 2: BINUNICODE, BINPUT, BINGET).
  const std::string text(size_t{1} << 20, 'x');
  std::string pickle("\x80\x02](X\x00\x00\x10\x00", 9);
  pickle += text + std::string("q\x00", 2);
  for (int i = 0; i < 10; ++i) pickle += std::string("h\x00", 2);
  const ReadingLimit limit(size_t{8} << 20);
  EXPECT_THAT(problem_of([&] { read_flight_recorder(pickle + "e.", "trace_rank_0", 0, limit); }),
              HasSubstr("trace_rank_0: its values take more memory than is given"));
}

TEST(FlightRecorder, KeysThatAreValuesOfAPickleAreRefused) {
  // Each would be quoted within the other, with twice as many backslashes.
  const std::string nested = "\x80\x02}(}(U\x01\\NuNu.";
  EXPECT_THAT(problem_of([&] { read_flight_recorder(nested, "trace_rank_0"); }),
              HasSubstr("keys that a Flight Recorder does not write"));
}

TEST(JsonOfOthers, ManyValuesHaveALimit) {
  std::string text = "[0";
  for (int i = 0; i < 100'000; ++i) text += ",[]";
  EXPECT_THAT(problem_of([&] { parse_json(text + "]", "answer", ReadingLimit(size_t{1} << 20)); }),
              HasSubstr("answer: its values take more memory than is given"));
  EXPECT_EQ(parse_json(text + "]", "answer").size(), 100'001U);
}

TEST(Ras, ReadsRanksAndTheirCounts) {
  const Evidence answer = read_ras(bytes_of("ras-2.28.9-lag.json"), "RAS");
  EXPECT_EQ(answer.source, EvidenceSource::ras);
  EXPECT_EQ(answer.version, "2.28.9");
  ASSERT_EQ(answer.groups.size(), 2u);
  const EvidenceGroup& world = answer.groups[0];
  EXPECT_EQ(world.size, 4);
  ASSERT_EQ(world.members.size(), 4u);
  EXPECT_EQ(world.member(2)->pid, 41002);
  EXPECT_EQ(world.member(2)->counts.at("all_reduce"), 16);
  EXPECT_EQ(world.member(3)->counts.at("all_reduce"), 17);
}

TEST(Ras, ReadsWhatAServiceHasAnswered) {
  const Evidence answer = read_ras(bytes_of("ras-2.28.9-recorded.json"), "RAS");
  ASSERT_EQ(answer.groups.size(), 2u);
  std::vector<int64_t> counts;
  for (const EvidenceGroup& group : answer.groups)
    for (const EvidenceMember& member : group.members)
      if (const auto count = member.counts.find("all_reduce"); count != member.counts.end())
        counts.push_back(count->second);
  EXPECT_THAT(counts, testing::Contains(3));
  EXPECT_THAT(counts, testing::Contains(2).Times(1));
}

TEST(Ras, ReadsTheAnswerOf228ThatLacksACommaWhereARankIsMissing) {
  const Evidence answer = read_ras(bytes_of("ras-2.28.9-missing.txt"), "RAS");
  const EvidenceMember* rank = answer.groups.at(0).member(2);
  ASSERT_TRUE(rank);
  EXPECT_TRUE(rank->missing);
  EXPECT_TRUE(rank->unresponsive);
  EXPECT_FALSE(rank->dead);
  EXPECT_EQ(answer.timeouts, 2);
  EXPECT_EQ(answer.gathered_s, 5.003);
}

TEST(Ras, ReadsADeadRankOf229AndErrorsOf230) {
  EXPECT_TRUE(read_ras(bytes_of("ras-2.29.7-dead.json"), "RAS").groups.at(0).member(2)->dead);
  const Evidence answer = read_ras(bytes_of("ras-2.30.7-error.json"), "RAS");
  const EvidenceGroup& world = answer.groups.at(0);
  EXPECT_EQ(world.member(0)->error, "remote error");
  EXPECT_EQ(world.member(1)->error, "system error");
  EXPECT_TRUE(world.member(2)->aborted);
  EXPECT_TRUE(world.member(3)->initializing);
  EXPECT_EQ(world.member(3)->error, "");
}

TEST(Ras, ProcessesNameTheRanks) {
  Evidence answer = read_ras(bytes_of("ras-2.28.9-lag.json"), "RAS");
  name_ranks(answer, {{41000, 0}, {41001, 1}, {41002, 2}, {41003, 3}});
  EXPECT_EQ(answer.groups[0].member(2)->rank, 2);
  EXPECT_THAT(answer.groups[0].ranks, ElementsAre(0, 1, 2, 3));
  Evidence partly = read_ras(bytes_of("ras-2.28.9-lag.json"), "RAS");
  name_ranks(partly, {{41000, 0}});
  EXPECT_THAT(partly.groups[0].ranks, IsEmpty()) << "some of its ranks are unknown";
}

// ---- Asynchronous errors --------------------------------------------------------------------------------------------

TEST(AsyncErrors, AreInOrderOfTime) {
  const Evidence sequence = read_async_errors(bytes_of("async-errors.jsonl"), "errors");
  ASSERT_EQ(sequence.errors.size(), 4u);
  EXPECT_EQ(sequence.errors[0].error, "") << "no error at first";
  EXPECT_EQ(sequence.errors[1].error, "system error");
  EXPECT_EQ(sequence.errors[2].rank, 3);
  EXPECT_EQ(sequence.errors[2].peer, 1);
  EXPECT_TRUE(sequence.errors[2].remote);
  EXPECT_EQ(sequence.errors[3].error, "remote error");
}

TEST(AsyncErrors, TheCauseIsTheFirstThatNoOtherRankCaused) {
  const auto errors = read_async_errors(bytes_of("async-errors.jsonl"), "errors").errors;
  ASSERT_TRUE(first_cause(errors));
  EXPECT_EQ(first_cause(errors)->rank, 1);
  std::vector<EvidenceError> remote_first = errors;
  remote_first[2].time_ns = remote_first[1].time_ns - 1;
  EXPECT_EQ(first_cause(remote_first)->rank, 1) << "rank 3's is a consequence, whenever it was seen";
  std::vector<EvidenceError> only_remote(errors.begin() + 2, errors.end());
  EXPECT_EQ(first_cause(only_remote)->rank, 3);
}

TEST(AsyncErrors, AnErrorThatIsGoneIsNoCause) {
  std::vector<EvidenceError> errors = {{.rank = 0, .group = "default", .time_ns = 1, .error = "system error"},
                                       {.rank = 0, .group = "default", .time_ns = 2, .error = ""}};
  EXPECT_FALSE(first_cause(errors));
}

TEST(AsyncErrors, NamesTheLineThatIsWrong) {
  EXPECT_THAT(problem_of([] { read_async_errors("\n{\"rank\":0}\n", "errors"); }),
              HasSubstr("errors, line 2 has no group"));
  EXPECT_THAT(
      problem_of([] { read_async_errors(R"({"rank":0,"group":"g","time_ns":1,"source":"mpi","error":2})", "errors"); }),
      HasSubstr("source is neither nccl nor c10d"));
}

// ---- Any file -------------------------------------------------------------------------------------------------------

TEST(ReadEvidence, KnowsAFileByItsContent) {
  for (const auto& [name, source] : {std::pair{"nccl_trace_rank_3.json", EvidenceSource::flight_recorder},
                                     std::pair{"gloo_trace_rank_1", EvidenceSource::flight_recorder},
                                     std::pair{"ras-2.28.9-missing.txt", EvidenceSource::ras},
                                     std::pair{"ras-2.30.7-error.json", EvidenceSource::ras},
                                     std::pair{"async-errors.jsonl", EvidenceSource::async_error}})
    EXPECT_EQ(read_evidence_file(evidence_file(name)).source, source) << name;
  EXPECT_EQ(read_evidence_file(evidence_file("nccl_trace_rank_3.json")).rank, 3);
}

TEST(ReadEvidence, AFolderAndAMissingFileAreErrors) {
  EXPECT_THAT(problem_of([] { read_evidence_file(LOCKSTEP_TEST_EVIDENCE); }), HasSubstr("not a file"));
  EXPECT_THAT(problem_of([] { read_evidence_file(evidence_file("none_7")); }), HasSubstr("not a file"));
}

/// Every file of evidence, by name.
std::vector<std::string> all_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_TEST_EVIDENCE))
    if (entry.path().extension() != ".md" && entry.path().extension() != ".cpp")
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Reads it: facts or an error that says why not, never anything else.
void read_altered(const std::string& bytes) {
  try {
    read_evidence(bytes, "altered");
  } catch (const UnreadableEvidence& error) {
    EXPECT_THAT(error.what(), HasSubstr("altered"));
  }
}

TEST(AlteredEvidence, EveryTruncationIsAnErrorThatNamesTheFile) {
  for (const std::string& name : all_files()) {
    const std::string bytes = bytes_of(name);
    for (size_t size = 0; size < bytes.size(); size += size < 200 ? 1 : 13) read_altered(bytes.substr(0, size));
    // Without its last brace (or a pickle's end) it is not complete.
    if (!name.ends_with(".jsonl"))
      EXPECT_NE(problem_of([&] { read_evidence(bytes.substr(0, bytes.find_last_not_of("\n")), "altered"); }), "none")
          << name;
  }
}

TEST(AlteredEvidence, ChangedBytesAreReadOrRefused) {
  std::mt19937 random(7);
  for (const std::string& name : all_files()) {
    const std::string bytes = bytes_of(name);
    for (int round = 0; round < 200; ++round) {
      std::string altered = bytes;
      for (unsigned k = 0; k <= random() % 4; ++k) altered[random() % altered.size()] = static_cast<char>(random());
      read_altered(altered);
    }
  }
}

TEST(AlteredEvidence, SwappedValuesAreReadOrRefused) {
  std::mt19937 random(11);
  const std::vector<std::string> values = {"null", "-1", "1e400", "[]", "{}", "\"\"", "true", "99999999999999999999"};
  for (const std::string& name : all_files()) {
    const std::string bytes = bytes_of(name);
    if (bytes[0] != '{') continue;
    for (int round = 0; round < 200; ++round) {
      const size_t colon = bytes.find(": ", random() % bytes.size());
      if (colon == std::string::npos) continue;
      const size_t end = bytes.find_first_of(",}\n", colon + 2);
      read_altered(bytes.substr(0, colon + 2) + values[random() % values.size()] + bytes.substr(end));
    }
  }
}

TEST(AlteredEvidence, APickleThatCallsAFunctionIsRefused) {
  EXPECT_THAT(problem_of([] {
                read_evidence(
                    "\x80\x02"
                    "cos\nsystem\nU\x04"
                    "true\x85R.",
                    "altered");
              }),
              HasSubstr("altered is no dump of a Flight Recorder"));
}

TEST(AlteredEvidence, APickleOfValuesInsideThemselvesIsRefused) {
  // A list that contains itself, as the value of "entries".
  EXPECT_THAT(problem_of([] {
                read_evidence(
                    "\x80\x02}X\x07\x00\x00\x00"
                    "entries]q\x00h\x00"
                    "as.",
                    "altered");
              }),
              HasSubstr("altered is no dump"));
}

}  // namespace
}  // namespace lockstep::inspect
