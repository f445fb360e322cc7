// How exceptions that leave a cell are told: type, text, line, stack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Error, NamesTypeTextAndLine) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("errors", "second_of_three");
  EXPECT_EQ(done.status, CellStatus::error);
  EXPECT_EQ(done.steps_done, 1) << "the step that threw is not done, the next did not run";
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "Mishap") << "without the compiler's namespace";
  EXPECT_EQ(done.error->message, "diverged at step 3");
  EXPECT_EQ(done.error->where, "cell 7, line 7");
  EXPECT_EQ(done.error->where_cell, 7);
  EXPECT_EQ(done.error->where_line, 7);
  EXPECT_TRUE(done.error->root_cause);
  EXPECT_THAT(done.error->stack, Contains("train(int) at cell 7, line 7"));
  EXPECT_THAT(done.error->stack, Contains("cell 7, line 10")) << "the cell's own level has no name";
  EXPECT_EQ(hub.output(done.cell), "first ");
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok) << "the rank goes on";
}

TEST(Error, InALibraryIsPlacedWhereTheCellCalledIt) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("errors", "library");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "std::out_of_range");
  EXPECT_EQ(done.error->where, "cell 7, line 12");
}

TEST(Error, OfAnyTypeIsTold) {
  FakeHub hub;
  hub.start_ready();
  auto done = hub.run_cell("errors", "odd");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "Odd");
  EXPECT_EQ(done.error->where, "cell 7, line 13");
  done = hub.run_cell("errors", "text");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "char const*");
  EXPECT_EQ(done.error->message, "just text");
  done = hub.run_cell("errors", "number");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "int");
  EXPECT_EQ(done.error->message, "42");
}

TEST(Error, OfATaskIsPlacedWhereItWasThrown) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("errors", "task");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->message, "in a task");
  EXPECT_EQ(done.error->where, "cell 7, line 17");
}

TEST(Error, TellsNestedOnesToo) {
  FakeHub hub;
  hub.start_ready();
  const auto done = hub.run_cell("errors", "nested");
  ASSERT_TRUE(done.error);
  EXPECT_THAT(done.error->type, HasSubstr("Mishap"));
  EXPECT_EQ(done.error->message, "outer: inner");
}

// Each of these ends a process.
TEST(Error, ThrowingAgainWhatIsNotThereEndsTheCellAndNotTheRank) {
  FakeHub hub;
  hub.start_ready();
  auto done = hub.run_cell("errors", "nested_in_nothing");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->message, "outer");
  EXPECT_EQ(done.error->where, "cell 7, line 24");
  done = hub.run_cell("errors", "again");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "std::logic_error");
  EXPECT_THAT(done.error->message, HasSubstr("there is no exception to throw again"));
  EXPECT_EQ(done.error->where, "cell 7, line 25");
  done = hub.run_cell("errors", "null_pointer");
  ASSERT_TRUE(done.error);
  EXPECT_THAT(done.error->message, HasSubstr("std::rethrow_exception was given a null std::exception_ptr"));
  EXPECT_EQ(done.error->where, "cell 7, line 26");
  done = hub.run_cell("errors", "in_handler");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->message, "first") << "in a handler `throw;` is what it always was";
  EXPECT_EQ(done.error->where, "cell 7, line 28");
  done = hub.run_cell("errors", "silent");
  ASSERT_TRUE(done.error);
  EXPECT_EQ(done.error->type, "Silent");
  EXPECT_EQ(done.error->message, "");
  done = hub.run_cell("errors", "deep");
  ASSERT_TRUE(done.error);
  EXPECT_THAT(done.error->message, ::testing::StartsWith("m: m: m: "));
  EXPECT_THAT(done.error->message, ::testing::EndsWith(": m: ..."));
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok) << "the rank goes on";
}

TEST(Load, ThatFailsSaysWhyAndTheRankGoesOn) {
  FakeHub hub;
  hub.start_ready();
  Load load;
  load.cell = 90;
  load.name = "cell_90.so";
  load.entry = "cell_unresolved";
  hub.send(load, 0, FakeHub::library("unresolved"));
  auto loaded = hub.expect<Loaded>();
  EXPECT_FALSE(loaded.ok);
  EXPECT_THAT(loaded.message, HasSubstr("lost::function_of_nobody(int)"));
  EXPECT_THAT(loaded.message, Not(HasSubstr(hub.directory())));

  load.cell = 91;
  load.name = "cell_91.so";
  hub.send(load, 0, "this is no library");
  EXPECT_FALSE(hub.expect<Loaded>().ok);

  load.cell = 92;
  load.name = "cell_92.so";
  load.entry = "cell_other_abi";
  hub.send(load, 0, FakeHub::library("other_abi"));
  loaded = hub.expect<Loaded>();
  EXPECT_FALSE(loaded.ok);
  EXPECT_THAT(loaded.message, HasSubstr("same build"));

  load.cell = 93;
  load.name = "../cell_93.so";
  hub.send(load, 0, FakeHub::library("output"));
  EXPECT_FALSE(hub.expect<Loaded>().ok);

  hub.run(92);
  const auto done = hub.expect<Done>();
  EXPECT_EQ(done.status, CellStatus::error) << "what is not loaded does not run";
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok);
}

TEST(Load, RunsNothingUntilItIsTold) {
  FakeHub hub;
  hub.start_ready();
  const auto first = hub.load("output", "mixed");
  hub.send(Drop{first});
  const auto done = hub.run_cell("output", "nothing");
  EXPECT_EQ(done.status, CellStatus::ok);
  EXPECT_EQ(hub.output(first), "");
  EXPECT_EQ(hub.query(question::Status()).cells_loaded, 1) << "what was dropped is gone";
  hub.run(first);
  EXPECT_EQ(hub.expect<Done>().status, CellStatus::error);
}

TEST(Run, MayComeAgain) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("output", "unfinished");
  hub.run(cell);
  hub.expect<Done>();
  hub.run(cell);
  hub.expect<Done>();
  EXPECT_EQ(hub.output(cell), "10%\r20%\r10%\r20%\r");
}

}  // namespace
}  // namespace lockstep::testing
