// Lesson 01, data-parallel training from scratch: what a class sees in it, and that its checks bite.
#include <gtest/gtest.h>

#include <set>

#include "tests/lessons/script_run.h"

namespace lockstep::test {
namespace {

const std::string kLesson = "lessons/01-ddp-from-scratch.cpp";

TEST(Lesson01, RunsOnTwoRanksAndReportsTheWrongModelForRank1Alone) {
  const auto run = run_script(kLesson, 2);
  EXPECT_EQ(run.exit_code, 0) << run.shown;

  const auto world_size = run.of("the world size: the same everywhere", "value");
  ASSERT_EQ(world_size.size(), 1u);
  EXPECT_EQ(world_size[0].at("ranks"), ranks({0, 1}));
  EXPECT_EQ(world_size[0].at("text"), "2");
  const auto rank = run.of("the rank: different everywhere", "value");
  ASSERT_EQ(rank.size(), 2u);
  EXPECT_EQ(rank[1].at("ranks"), ranks({1}));
  EXPECT_EQ(rank[1].at("text"), "1");

  const std::string title = "wrap a model that was made with different seeds";
  const auto errors = run.of(title, "error");
  ASSERT_EQ(errors.size(), 1u) << run.shown;
  EXPECT_EQ(errors[0].at("ranks"), ranks({1}));
  EXPECT_NE(errors[0].at("message").get<std::string>().find("set_seed"), std::string::npos);
  EXPECT_TRUE(errors[0].at("root_cause"));
  const auto cell = run.of(title, "cell");
  ASSERT_EQ(cell.size(), 1u);
  EXPECT_EQ(cell[0].at("rank_status").at("0"), "ok");
  EXPECT_EQ(cell[0].at("rank_status").at("1"), "error");

  // Without an average each rank has a loss of its own; then all ranks find that their replicas have parted.
  EXPECT_EQ(run.of("every rank its own sample", "value").size(), 2u);
  const auto parted = run.of("are the replicas still the same?", "error");
  ASSERT_EQ(parted.size(), 1u);
  EXPECT_EQ(parted[0].at("ranks"), ranks({0, 1}));
  EXPECT_NE(parted[0].at("message").get<std::string>().find("rank 1, tensor 0 (conv1.weight) differs"),
            std::string::npos);
}

TEST(Lesson01, RunsOnFourRanks) {
  const auto run = run_script(kLesson, 4);
  EXPECT_EQ(run.exit_code, 0) << run.shown;
  const auto errors = run.of("wrap a model that was made with different seeds", "error");
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].at("ranks"), ranks({1, 2, 3}));
}

TEST(Lesson01, SaysThatItNeedsTwoRanks) {
  const auto run = run_script(kLesson, 1);
  EXPECT_EQ(run.exit_code, 1);
  const auto errors = run.of("the world size: the same everywhere", "error");
  ASSERT_EQ(errors.size(), 1u) << run.shown;
  EXPECT_NE(errors[0].at("message").get<std::string>().find("-n 2"), std::string::npos);
}

TEST(Lesson01, NoticesAStepWithoutAverage) {
  expect_noticed(kLesson, "the same step, with the average", "replica.sync_gradients();\n", "", "and the same check");
}

TEST(Lesson01, NoticesATimingWithoutAverage) {
  expect_noticed(kLesson, "all ranks, each with its share, as one model", "  replica.sync_gradients();\n", "",
                 "and now?");
}

TEST(Lesson01, NoticesAWrongWindow) {
  expect_noticed(kLesson, "// %% the right one", "(index + 1) % kWindow == 0", "index % kWindow == 0", "and these?");
}

TEST(Lesson01, NoticesAScopeThatDoesNotRestore) {
  expect_noticed(kLesson, "// %% version 4", "do_sync_ = before_;", "do_sync_ = true;",
                 "the scope puts back what was there before");
}

TEST(Lesson01, NoticesAccumulationThatIsNotTheLargeBatch) {
  expect_noticed(kLesson, "template <typename Replica>", " / kWindow;", ";", "one step with the large batch");
}

}  // namespace
}  // namespace lockstep::test
