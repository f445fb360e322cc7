// Rule 5: no byte is lost or misplaced; a storm neither exhausts memory nor delays control.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;

TEST(Output, IsCapturedWhateverWritesIt) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "mixed");
  EXPECT_EQ(done.status, CellStatus::ok);
  EXPECT_EQ(done.steps_done, 1);
  EXPECT_EQ(hub.output(done.cell), "printf cout write child end");
  EXPECT_EQ(hub.output(done.cell, Stream::standard_error), "error cerr");
}

// The C library's streams are narrow or wide for good, and drop what is written in the other way.
TEST(Output, WideAndNarrowGoTogether) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "wide");
  EXPECT_EQ(hub.output(done.cell), "wcout \u00fc 7 wprintf 8 fputws printf cout");
  EXPECT_EQ(hub.output(done.cell, Stream::standard_error), "wcerr cerr");
}

TEST(Output, ComesBeforeTheEndOfItsCell) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "mixed");
  std::string before;
  for (const auto& seen : hub.seen) {
    if (seen.kind == "done") break;
    if (seen.kind == "output") before += seen.text;
  }
  EXPECT_EQ(before.size(), std::string("printf cout write child end"
                                       "error cerr")
                               .size());
}

TEST(Output, KeepsCarriageReturnsAndUnfinishedLines) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("output", "unfinished");
  EXPECT_EQ(hub.output(done.cell), "10%\r20%\r");
}

TEST(Output, ComesWhileTheCellRuns) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("output", "partial_then_wait");
  hub.run(cell);
  EXPECT_TRUE(eventually([&] { return hub.output(cell) == "partial"; }));
  EXPECT_FALSE(hub.has<Done>());
  std::ofstream(hub.directory() + "/go");
  EXPECT_EQ(hub.expect<Done>().status, CellStatus::ok);
}

TEST(Output, OfABackgroundThreadGoesToTheLastCell) {
  FakeHub hub;
  hub.start_ready();
  hub.run_cell("output", "background");
  const auto last = hub.run_cell("output", "nothing");
  std::ofstream(hub.directory() + "/go");
  EXPECT_TRUE(eventually([&] { return hub.output(last.cell) == "from the background"; }));
}

TEST(Output, StandardInputIsEmpty) {
  FakeHub hub;
  hub.start_ready();
  EXPECT_EQ(hub.output(hub.run_cell("output", "stdin_is_empty").cell), "-1");
}

TEST(Output, AStreamOfInputThatIsReadSaysThatThereIsNone) {
  FakeHub hub;
  hub.start_ready();
  for (int again = 0; again < 2; ++again) {  // what the first left behind does not hide the second
    const auto done = hub.run_cell("output", "reads_cin");
    ASSERT_TRUE(done.error);
    EXPECT_NE(done.error->message.find("--arg NAME=VALUE"), std::string::npos) << done.error->message;
    EXPECT_EQ(hub.output(done.cell), "");
  }
}

TEST(Output, OfAHundredMegabytesArrivesInOrder) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("output", "hundred_megabytes");
  hub.run(cell);
  EXPECT_TRUE(eventually([&] { return hub.query(question::Status()).state == RankState::running; }))
      << "answered while the cell prints";
  const auto done = hub.expect<Done>();
  EXPECT_EQ(done.status, CellStatus::ok);
  const auto text = hub.output(cell);
  ASSERT_EQ(text.size(), 100'000'000u / 64 * 64);
  int64_t wrong = 0;
  char expected[65];
  for (size_t i = 0; i < text.size() / 64; ++i) {
    snprintf(expected, sizeof expected, "%063zu\n", i);
    wrong += text.compare(i * 64, 64, expected) != 0;
  }
  EXPECT_EQ(wrong, 0);
  // The log that outlives the process holds what is not confirmed, and no more.
  struct stat log = {};
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(hub.process().pid()) + "/fd")) {
    std::error_code error;  // descriptors come and go
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    if (!error && target.starts_with("/memfd:stdout")) ::stat(entry.path().c_str(), &log);
  }
  EXPECT_EQ(static_cast<size_t>(log.st_size), text.size());
  EXPECT_LT(log.st_blocks * 512, 4 << 20);
}

TEST(Output, WaitsForCreditAndControlDoesNot) {
  FakeHub hub;
  hub.start_ready();
  hub.grant_credit(false);
  const auto cell = hub.load("output", "storm");
  hub.run(cell);
  EXPECT_TRUE(eventually([&] { return hub.output(cell).size() >= kOutputWindow; }));
  const auto before = hub.query(question::Status());
  EXPECT_EQ(before.state, RankState::running);
  const auto after = hub.query(question::Status());
  EXPECT_EQ(hub.total_bytes(), kOutputWindow) << "no byte without credit";
  // The pipe is full by now, so that memory can't grow: a megabyte here and one in the pipe.
  EXPECT_LT(after.rss_bytes.value() - before.rss_bytes.value(), 4 << 20);
  hub.send(Interrupt{cell});
  hub.grant_credit(true);
  hub.send(Credit{hub.ungranted()});
  const auto done = hub.expect<Done>();
  EXPECT_EQ(done.status, CellStatus::interrupted);
}

}  // namespace
}  // namespace lockstep::testing
