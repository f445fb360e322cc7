// The journal of a session: its records, what is left of damaged files, how much is kept, and what a session writes.
#include <fcntl.h>
#include <sys/stat.h>
#include <utime.h>

#include <cmath>

#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/events/event_reader.h"
#include "shell/journal/journal.h"
#include "shell/journal/journal_content.h"
#include "shell/journal/journal_reader.h"
#include "shell/journal/record.h"
#include "tests/shell/core/session_fixture.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<json> records_of(const std::string& path) {
  std::vector<json> records;
  JournalReader reader(path);
  while (auto record = reader.next()) records.push_back(std::move(*record));
  return records;
}

/// "input", "output:hello", … as they were written.
std::vector<std::string> kinds_of(const std::vector<json>& records) {
  std::vector<std::string> kinds;
  for (const json& record : records) {
    std::string kind = record["event"];
    if (kind == "output") kind += ":" + record.value("text", "");
    kinds.push_back(kind);
  }
  return kinds;
}

void write_file(const std::string& path, std::string_view text) {
  ASSERT_EQ(protocol::replace_file(path, text, 0600), 0);
}

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-journal-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    state_ = name;
    ::setenv("XDG_STATE_HOME", name.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("XDG_STATE_HOME");
    fs::remove_all(state_);
  }
  std::unique_ptr<Journal> begin(const std::string& id, const JournalLimits& limits = {}) {
    return std::make_unique<Journal>(
        id, limits, [] { return json{{"language", "cpp"}}; },
        [this](const std::string& text) { warnings_.push_back(text); });
  }
  static void cell(Journal& journal, int64_t number, const std::string& output) {
    journal.begin_cell({.number = number, .title = "", .text = "cell " + std::to_string(number), .ranks = {0, 1}});
    journal.take(OutputEvent{number, {0, 1}, Stream::standard_output, output});
    journal.end_cell(number, {0, 1}, CellStatus::ok, 0);
  }
  std::string folder(const std::string& id) const { return (state_ / "lockstep/sessions" / id).string(); }

  fs::path state_;
  std::vector<std::string> warnings_;
};

TEST(JournalRecord, IsReadAsItWasWritten) {
  const json record = {{"event", "output"}, {"n", 7u}, {"text", "grüße\n\"quoted\""}, {"time", 1.5}};
  std::string line = record_line(record);
  ASSERT_TRUE(line.ends_with('\n'));
  line.pop_back();
  EXPECT_EQ(read_record(line), record);
  EXPECT_EQ(json::parse(line).at("text"), record["text"]);  // any reader of JSON takes it
}

TEST(JournalRecord, EveryTornOrDamagedLineIsRefused) {
  std::string line = record_line({{"event", "value"}, {"n", 12u}, {"text", "0.125 and more than eight bytes"}});
  line.pop_back();
  for (size_t size = 0; size < line.size(); ++size) EXPECT_FALSE(read_record(line.substr(0, size))) << size;
  for (size_t at = 0; at < line.size(); ++at) {
    std::string damaged = line;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(read_record(damaged)) << at;
  }
  for (const char* garbage :
       {"", "null", "{}", "[1]", "{\"check\":\"", "{\"event\":\"value\",\"n\":1}", "\xff\xfe\x00"})
    EXPECT_FALSE(read_record(garbage)) << garbage;
}

TEST_F(JournalTest, KeepsWhatASessionDid) {
  auto journal = begin("1-a");
  cell(*journal, 1, "one\n");
  cell(*journal, 2, "two\n");
  journal.reset();
  const auto records = records_of(folder("1-a"));
  EXPECT_THAT(kinds_of(records),
              ElementsAre("journal", "input", "output:one\n", "ran", "input", "output:two\n", "ran", "closed"));
  EXPECT_EQ(records.at(1).at("text"), "cell 1");
  EXPECT_EQ(records.at(0).at("id"), "1-a");
  EXPECT_THAT(warnings_, IsEmpty());
  struct stat status = {};
  ASSERT_EQ(::stat(folder("1-a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  for (const auto& file : fs::directory_iterator(folder("1-a"))) {
    ASSERT_EQ(::stat(file.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << file.path();
  }
}

TEST_F(JournalTest, ASessionWithoutACellLeavesNone) {
  auto journal = begin("1-a");
  journal->take(SessionEvent{.id = "1-a", .ranks = {0, 1}, .backend = "gloo", .devices = {}, .versions = {}});
  journal.reset();
  EXPECT_FALSE(fs::exists(folder("1-a")));
  journal = begin("1-b");
  journal->take(SessionEvent{.id = "1-b", .ranks = {0, 1}, .backend = "gloo", .devices = {}, .versions = {}});
  cell(*journal, 1, "one\n");
  EXPECT_THAT(kinds_of(records_of(folder("1-b"))), ElementsAre("journal", "session", "input", "output:one\n", "ran"));
}

TEST_F(JournalTest, AFileThatEndsAnywhereLosesItsLastRecordOnly) {
  auto journal = begin("1-a");
  for (int i = 1; i <= 3; ++i) cell(*journal, i, "some output of cell " + std::to_string(i) + "\n");
  journal.reset();
  const auto whole = records_of(folder("1-a"));
  for (const std::string& path : {cells_path(folder("1-a")), output_path(folder("1-a"), 1)}) {
    const std::string text = protocol::read_file(path).value();
    for (size_t size = 0; size < text.size(); ++size) {
      write_file(path, std::string_view(text).substr(0, size));
      // What is expected: the records of the lines that are whole, and those of the other file.
      std::vector<uint64_t> gone;
      size_t line = 0;
      for (const json& record : whole) {
        const bool is_output = record["event"] == "output";
        if (is_output != (path == output_path(folder("1-a"), 1))) continue;
        line += record_line(record).size();
        if (line > size) gone.push_back(record["n"]);
      }
      std::vector<json> left;
      for (const json& record : records_of(folder("1-a")))
        if (record["event"] != "missing") left.push_back(record);
      ASSERT_EQ(left.size(), whole.size() - gone.size()) << path << " cut to " << size;
      size_t at = 0;
      for (const json& record : whole)
        if (std::ranges::find(gone, record["n"].get<uint64_t>()) == gone.end()) {
          ASSERT_EQ(left.at(at++), record);
        }
    }
    write_file(path, text);
  }
}

TEST_F(JournalTest, ADamagedRecordIsMissingAndTheRestIsThere) {
  auto journal = begin("1-a");
  for (int i = 1; i <= 3; ++i) cell(*journal, i, "out\n");
  journal.reset();
  const std::string path = cells_path(folder("1-a"));
  std::string text = protocol::read_file(path).value();
  text.replace(text.find("cell 2"), 6, "cell 9");
  write_file(path, text);
  JournalReader reader(folder("1-a"));
  std::vector<json> records;
  while (auto record = reader.next()) records.push_back(*record);
  EXPECT_THAT(kinds_of(records), ElementsAre("journal", "input", "output:out\n", "ran", "missing", "output:out\n",
                                             "ran", "input", "output:out\n", "ran", "closed"));
  EXPECT_EQ(records.at(4).at("records"), 1);
  EXPECT_EQ(records.at(4).at("reason"), "lost");
  EXPECT_EQ(reader.damaged(), 1);
  // Garbage, empty lines and what is no text stand for nothing.
  write_file(path, "\n\n\xff\xfe garbage\n{}\n" + text + std::string("\0\0\0\0", 4));
  EXPECT_EQ(records_of(folder("1-a")), records);
}

TEST_F(JournalTest, CellsThatWereLostAreCountedAndTheirEndsAreNoOtherCells) {
  ::setenv("XDG_STATE_HOME", "/dev/null", 1);
  auto journal = begin("1-a");
  cell(*journal, 1, "lost: there is no folder yet\n");
  ::setenv("XDG_STATE_HOME", state_.c_str(), 1);
  for (int i = 2; i <= 5; ++i) cell(*journal, i, "out\n");
  journal.reset();
  const std::string path = cells_path(folder("1-a"));
  std::string left;
  for (const json& record : records_of(folder("1-a"))) {
    const auto input = record.value("input", 0);
    const bool is_lost =
        (input == 2 && record["event"] == "ran") || (input == 3 && record["event"] == "input") || input == 5;
    if (record["event"] != "output" && !is_lost) left += record_line(record);
  }
  write_file(path, left);
  const JournalContent content = read_journal(folder("1-a"));
  ASSERT_EQ(content.entries.size(), 2u);
  EXPECT_EQ(content.entries[0].text, "cell 2");
  EXPECT_EQ(content.entries[0].status, std::nullopt);
  EXPECT_EQ(content.entries[1].text, "cell 4");
  EXPECT_EQ(content.entries[1].number, 4);
  EXPECT_EQ(content.entries[1].status, CellStatus::ok);
  EXPECT_EQ(content.missing_cells(), 3);
}

TEST_F(JournalTest, OutputBeyondTheSizeGoesAndCellsStay) {
  JournalLimits limits;
  limits.output_mb = 1;
  auto journal = begin("1-a", limits);
  const std::string output(10'000, 'x');
  constexpr int kCells = 400;
  for (int i = 1; i <= kCells; ++i) cell(*journal, i, output);
  journal.reset();
  uint64_t bytes = 0;
  for (const int64_t number : output_files(folder("1-a"))) bytes += fs::file_size(output_path(folder("1-a"), number));
  EXPECT_LE(bytes, (1u << 20) + 2 * output.size());
  EXPECT_GT(bytes, 1u << 19);
  int inputs = 0, outputs = 0, rotations = 0;
  uint64_t missing = 0;
  for (const json& record : records_of(folder("1-a"))) {
    inputs += record["event"] == "input";
    outputs += record["event"] == "output";
    rotations += record["event"] == "rotated";
    if (record["event"] != "missing") continue;
    EXPECT_EQ(record["reason"], "size");
    missing += record["records"].get<uint64_t>();
  }
  EXPECT_EQ(inputs, kCells);
  EXPECT_EQ(missing + static_cast<uint64_t>(outputs), kCells);
  EXPECT_GT(rotations, 0);
  EXPECT_EQ(records_of(folder("1-a")).back()["event"], "closed");
}

TEST_F(JournalTest, CellsBeyondTheSizeGoAndTheFirstOnesStay) {
  JournalLimits limits;
  limits.output_mb = 1;
  auto journal = begin("1-a", limits);
  const std::string comment = "  // " + std::string(10'000, 'x');
  constexpr int kCells = 400;
  for (int i = 1; i <= kCells; ++i) {
    journal->begin_cell({.number = i, .title = "", .text = "cell " + std::to_string(i) + comment, .ranks = {0, 1}});
    journal->end_cell(i, {0, 1}, CellStatus::ok, 0);
  }
  EXPECT_TRUE(read_journals().at(0).is_open);
  journal.reset();
  EXPECT_FALSE(read_journals().at(0).is_open);
  EXPECT_LE(read_journals().at(0).bytes, (1u << 20) + 9 * 2 * comment.size());
  EXPECT_GT(read_journals().at(0).bytes, 1u << 19);
  uint64_t before = 0, missing = 0, rotations = 0;
  for (const json& record : records_of(folder("1-a"))) {
    EXPECT_EQ(record["n"], before + 1);
    before = record["n"].get<uint64_t>();
    rotations += record["event"] == "rotated";
    if (record["event"] != "missing") continue;
    EXPECT_EQ(record["reason"], "size");
    missing += record["records"].get<uint64_t>();
    before += record["records"].get<uint64_t>() - 1;
  }
  EXPECT_GT(rotations, 0u);
  const JournalContent content = read_journal(folder("1-a"));
  EXPECT_EQ(content.description["id"], "1-a");
  EXPECT_TRUE(content.is_closed);
  EXPECT_EQ(content.damaged, 0);
  EXPECT_EQ(content.entries.front().text, "cell 1" + comment);
  EXPECT_EQ(content.entries.back().text, "cell 400" + comment);
  EXPECT_EQ(content.missing_cells(), kCells - static_cast<int64_t>(content.cells()));
  EXPECT_GT(content.missing_cells(), 200);
  EXPECT_LE(2u * static_cast<uint64_t>(content.missing_cells()), missing + 1);
}

TEST_F(JournalTest, AFolderThatCannotBeMadeIsSaidOnce) {
  ::setenv("XDG_STATE_HOME", "/dev/null", 1);
  auto journal = begin("1-a");
  cell(*journal, 1, "one\n");
  cell(*journal, 2, "two\n");
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("/dev/null"));
  EXPECT_THAT(warnings_[0], HasSubstr("The session goes on"));
}

TEST_F(JournalTest, OffKeepsNone) {
  auto journal = begin("1-a", parse_journal_limits("off"));
  cell(*journal, 1, "one\n");
  journal.reset();
  EXPECT_FALSE(fs::exists(state_ / "lockstep"));
}

TEST(JournalLimits, AreReadAndSlipsNamed) {
  const JournalLimits limits = parse_journal_limits("size=8,sessions=3,days=2,all=100");
  EXPECT_EQ(limits.output_mb, 8);
  EXPECT_EQ(limits.sessions, 3);
  EXPECT_EQ(limits.days, 2);
  EXPECT_EQ(limits.all_mb, 100);
  EXPECT_EQ(parse_journal_limits("").output_mb, JournalLimits().output_mb);
  for (const char* slip : {"no", "size", "size=", "size=-1", "size=8MB", "sizes=8", "size=8;days=1"})
    EXPECT_THROW(parse_journal_limits(slip), UsageError) << slip;
}

TEST_F(JournalTest, OldOnesGoAndThoseOfRunningSessionsStay) {
  auto running = begin("1-a");
  cell(*running, 1, "one\n");
  for (int i = 2; i <= 6; ++i) {
    auto journal = begin(std::to_string(i) + "-b");
    cell(*journal, 1, "one\n");
    journal.reset();
  }
  fs::create_directories(folder("notes"));
  const auto age = [&](const std::string& id, int days) {
    const time_t then = ::time(nullptr) - days * 24 * 3600 - 10;
    const utimbuf times{then, then};
    for (const auto& file : fs::directory_iterator(folder(id))) ::utime(file.path().c_str(), &times);
    ::utime(folder(id).c_str(), &times);
  };
  age("1-a", 500);
  age("4-b", 40);
  age("5-b", 10);
  JournalLimits limits;
  limits.days = 30;
  EXPECT_THAT(remove_old_journals(limits), ElementsAre("4-b"));
  limits.sessions = 3;
  EXPECT_THAT(remove_old_journals(limits), ElementsAre("5-b"));
  limits.all_mb = 0;
  EXPECT_THAT(remove_old_journals(limits), ElementsAre("2-b", "3-b", "6-b"));
  EXPECT_TRUE(fs::exists(folder("1-a")));
  EXPECT_TRUE(fs::exists(folder("notes")));
  EXPECT_THAT(remove_journal(read_journals().at(0)), HasSubstr("its session runs"));
  EXPECT_TRUE(read_journals().at(0).is_open);
  running.reset();
}

TEST_F(JournalTest, AreFoundByTheBeginOfTheirIds) {
  EXPECT_THROW(find_journal("1"), UsageError);
  EXPECT_THROW(find_journal("last"), UsageError);
  for (const char* id : {"10-a", "12-b"}) {
    auto journal = begin(id);
    cell(*journal, 1, "one\n");
  }
  auto running = begin("13-c");
  cell(*running, 1, "one\n");
  EXPECT_EQ(find_journal("10").id, "10-a");
  EXPECT_EQ(find_journal("13-c").id, "13-c");
  const auto set_changed = [&](const std::string& id, long ns) {  // within one second
    const timespec times[] = {{.tv_sec = 1'700'000'000, .tv_nsec = ns}, {.tv_sec = 1'700'000'000, .tv_nsec = ns}};
    for (const auto& file : fs::directory_iterator(folder(id))) ::utimensat(AT_FDCWD, file.path().c_str(), times, 0);
    ::utimensat(AT_FDCWD, folder(id).c_str(), times, 0);
  };
  set_changed("10-a", 700'000'000);
  set_changed("12-b", 300'000'000);
  EXPECT_EQ(find_journal("last").id, "10-a");
  EXPECT_THROW(find_journal("1"), UsageError);
  EXPECT_THROW(find_journal("7"), UsageError);
}

TEST(JournalEvents, AreReadBackAsTheyWere) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "verify";
  finding.verdict = Verdict::mismatch;
  finding.ranks = {2};
  finding.message = "rank 2 differs";
  FindingTensor tensor;
  tensor.name = "fc1.weight";
  tensor.shape = {2, 3};
  tensor.max_abs_diff = INFINITY;
  tensor.norms = {{0, 1.5}, {2, std::nan("")}};
  finding.tensors = {tensor};
  const std::vector<Event> events = {
      SessionEvent{
          .id = "1-a", .ranks = {0, 1}, .backend = "gloo", .devices = {{0, "cpu"}}, .versions = {{"python", "p"}}},
      CellEvent{.cell = 7,
                .title = "t",
                .ranks = {0, 1},
                .status = CellStatus::error,
                .rank_status = {{0, CellStatus::ok}, {1, CellStatus::error}},
                .run_ms = {{0, 1.5}, {1, 2}},
                .compile_ms = std::nan(""),
                .file = "a.cpp",
                .line = 3,
                .expected = false},
      OutputEvent{7, {0}, Stream::standard_error, std::string("\xff\0x", 3)},
      OutputEvent{7, {0, 1}, Stream::standard_output, "grüße\n"},
      ValueEvent{.cell = 7, .ranks = {1}, .text = "nan", .data = {{"a", "nan"}}, .label = "loss"},
      ErrorEvent{.cell = 7,
                 .ranks = {1},
                 .type = "std::runtime_error",
                 .message = "boom",
                 .where = "cell 7, line 1",
                 .root_cause = false,
                 .stack = {"a", "b"},
                 .traceback = "Traceback",
                 .diagnostics = {{DiagnosticSeverity::error, 1, 2, "", "no such name"}}},
      FindingEvent{finding},
      RankEvent{2, RankState::dead, "killed by SIGKILL"},
      MessageEvent{7, "text", {{"quiet", true}}},
      MarkdownEvent{"# Title"},
      ProgressEvent{.cell = 7,
                    .loop = 2,
                    .parent = 1,
                    .label = "epoch",
                    .line = 4,
                    .ranks = {0, 1},
                    .done = {{0, 5}},
                    .total = {{1, 10}},
                    .elapsed_s = {{0, INFINITY}},
                    .state = LoopState::stopped},
      PageEvent{7, "page"},
      EndEvent{1, {{"cells", 3}}}};
  for (const Event& event : events) {
    const json form = to_event_json(event);
    const auto read = read_event(form);
    ASSERT_TRUE(read) << form;
    EXPECT_EQ(to_event_json(*read), form);
  }
}

TEST(JournalEvents, WhatIsNoEventIsRefused) {
  for (const char* text :
       {"null", "[]", "{}", R"({"event":"input"})", R"({"event":"cell"})", R"({"event":7})",
        R"({"event":"output","cell":"x","ranks":[0],"stream":"stdout","text":"t"})",
        R"({"event":"output","cell":1,"ranks":[0],"stream":"nowhere","text":"t"})",
        R"({"event":"output","cell":1,"ranks":[0],"stream":"stdout","base64":"?"})",
        R"({"event":"session","id":"a","ranks":[0],"backend":"b","devices":{"x":"cpu"},"versions":{}})"})
    EXPECT_FALSE(read_event(json::parse(text))) << text;
}

class JournalOfSession : public SessionTest {
 protected:
  std::string path() const {
    const auto journals = read_journals();
    EXPECT_EQ(journals.size(), 1u);
    return journals.empty() ? "" : journals.front().path;
  }
};

TEST_F(JournalOfSession, HasEachCellBeforeItRunsAndWhatCameOfIt) {
  start(2);
  std::vector<std::string> seen;
  recorder_.also = [&](const Event& event) {
    if (std::holds_alternative<OutputEvent>(event))  // what is shown is there already
      for (const json& record : records_of(path()))
        if (record["event"] == "output") seen.push_back(record["text"]);
  };
  run("print hello");
  EXPECT_THAT(seen, ElementsAre("hello\n"));
  recorder_.also = nullptr;
  run("rank 1 throw boom");
  run("%history");
  run("%no_such_magic");
  session_.reset();
  const JournalContent content = read_journal(path());
  ASSERT_EQ(content.entries.size(), 4u);
  EXPECT_EQ(content.ranks, 2);
  EXPECT_TRUE(content.is_closed);
  EXPECT_EQ(content.entries[0].text, "print hello");
  EXPECT_EQ(content.entries[0].number, 1);
  EXPECT_EQ(content.entries[1].status, CellStatus::error);
  EXPECT_EQ(content.entries[2].number, 0);
  EXPECT_EQ(content.entries[3].status, CellStatus::usage_error);
}

TEST_F(JournalOfSession, GoesOnWhenRanksAreStartedAfresh) {
  Session& session = start(2);
  run("print one");
  session.shutdown();
  run("print two");
  session_.reset();
  std::vector<std::string> ids;
  for (const json& record : records_of(path()))
    if (record["event"] == "session") ids.push_back(record["id"]);
  EXPECT_THAT(ids, ElementsAre(read_journals().at(0).id, read_journals().at(0).id));
  EXPECT_EQ(read_journal(path()).entries.size(), 2u);
}

TEST_F(JournalOfSession, IsNotKeptWhereItIsNotWanted) {
  SessionOptions options;
  options.keeps_journal = false;
  start(1, options);
  run("print hello");
  session_.reset();
  EXPECT_THAT(read_journals(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::shell
