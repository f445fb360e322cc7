// Lessons 02 to 04, run as people run them, on two ranks and on four; and with one thing spoiled each time: the lesson must notice.
#include <gtest/gtest.h>

#include "tests/lessons/script_run.h"

namespace lockstep::test {
namespace {

constexpr const char* kOneToMany = "lessons/02-one-device-to-many.cpp";
constexpr const char* kAccumulation = "lessons/03-accumulation.cpp";
constexpr const char* kInsideDdp = "lessons/04-inside-ddp.cpp";

std::string text_of(const ScriptRun& run, const std::string& title) {
  std::string text;
  for (const auto& output : run.of(title, "output")) text += output.at("text").get<std::string>();
  return text;
}

/// The one value that all ranks show in that cell.
std::string value_of(const ScriptRun& run, const std::string& title) {
  const auto values = run.of(title, "value");
  EXPECT_EQ(values.size(), 1u) << title << "\n" << run.shown;
  return values.empty() ? "" : values.back().at("text").get<std::string>();
}

ScriptRun run_whole(const char* lesson, int ranks) {
  auto run = run_script(lesson, ranks);
  EXPECT_EQ(run.exit_code, 0) << run.shown;
  return run;
}

class OneToMany : public ::testing::TestWithParam<int> {};
class Accumulation : public ::testing::TestWithParam<int> {};
class InsideDdp : public ::testing::TestWithParam<int> {};

TEST_P(OneToMany, HasTheLossOfOneDevice) {
  const auto run = run_whole(kOneToMany, GetParam());
  const auto alone = text_of(run, "train on one device");
  EXPECT_NE(alone.find("epoch 29: loss 0."), std::string::npos) << alone;
  EXPECT_EQ(text_of(run, "train on all of them"), alone) << "to four digits";
  EXPECT_EQ(value_of(run, "each rank's part of every batch"), "[" + std::to_string(32 / GetParam()) + "]");
  EXPECT_EQ(value_of(run, "no wine is read twice"), GetParam() == 4 ? "140" : "142");
}
INSTANTIATE_TEST_SUITE_P(OnRanks, OneToMany, ::testing::Values(1, 2, 4), ::testing::PrintToStringParamName());

TEST_P(Accumulation, HasTheLossOfASingleProcess) {
  const int ranks = GetParam();
  const auto run = run_whole(kAccumulation, ranks);
  EXPECT_EQ(value_of(run, "passes of each rank for one update"), std::to_string(16 / ranks));
  const auto refused = run.of("three can't share them", "error");
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].at("message").get<std::string>().find("516096 or 540672"), std::string::npos);
  EXPECT_EQ(value_of(run, "a window that ends too early"), ranks == 1 ? "true" : "false");
  if (ranks > 1) {
    EXPECT_EQ(text_of(run, "count the collectives of an update"),
              "1 for an update, " + std::to_string(16 / ranks) + " when every pass is synchronised\n");
  }
}
INSTANTIATE_TEST_SUITE_P(OnRanks, Accumulation, ::testing::Values(1, 2, 4), ::testing::PrintToStringParamName());

TEST_P(InsideDdp, ShowsANumberForEachOption) {
  const auto run = run_whole(kInsideDdp, GetParam());
  EXPECT_NE(text_of(run, "one bucket before the first step, several after it").find("bucket 0, "), std::string::npos);
  const auto bytes = run.of("gradients outside of the buckets, in bytes", "value");
  ASSERT_EQ(bytes.size(), 2u) << run.shown;
  EXPECT_EQ(bytes[0].at("text"), "350288") << "each of the model's 87,572 parameters as a float";
  EXPECT_EQ(bytes[1].at("text"), "0");
  EXPECT_NE(value_of(run, "the next forward names them").find("spare.weight"), std::string::npos);
  const auto counted = run.of("count them", "value");
  ASSERT_EQ(counted.size(), 2u);
  EXPECT_EQ(counted[0].at("text"), "every time: 8");
  EXPECT_EQ(counted[1].at("text"), "once: 2");
  EXPECT_NE(text_of(run, "efficiency on this machine").find("strong "), std::string::npos);
}
INSTANTIATE_TEST_SUITE_P(OnRanks, InsideDdp, ::testing::Values(2, 4), ::testing::PrintToStringParamName());

TEST(OneToManyNotices, ThatNothingIsLearnt) {
  expect_noticed(kOneToMany, "// %% a trainer", "      optimizer.step();\n", "", "it has learnt");
}
TEST(OneToManyNotices, ThatAllRanksReadTheSameRows) {
  expect_noticed(kOneToMany, "Batches my_batches", "rank * share", "0", "the losses are those of one device");
}
TEST(OneToManyNotices, ThatEveryEpochHasTheSameOrder) {
  expect_noticed(kOneToMany, "Batches sampled_batches", "  sampler.set_epoch(epoch);\n", "",
                 "and the next epoch has another order");
}
TEST(OneToManyNotices, ThatTheModelIsNotWrapped) {
  expect_noticed(kOneToMany, "// %% train on all of them", "ddp::DistributedDataParallel(std::make_shared<Net>())",
                 "std::make_shared<Net>()", "the losses are those of one device");
}
TEST(AccumulationNotices, ThatTheLossIsNotDivided) {
  expect_noticed(kAccumulation, "double accumulate(", "rows.y) / passes;", "rows.y);",
                 "a single process with the same tokens");
}
TEST(AccumulationNotices, ThatTheWrongPassIsSynchronised) {
  expect_noticed(kAccumulation, "double accumulate(", "pass == passes - 1", "pass == 0",
                 "a single process with the same tokens");
}
TEST(AccumulationNotices, ThatRowsAreReadTwice) {
  expect_noticed(kAccumulation, "int64_t my_pass(", "rank + pass * world_size", "rank + pass",
                 "the ranks together read every row of an update once");
}
TEST(InsideDdpNotices, ThatTheStepIsNotStartedAfresh) {
  expect_noticed(kInsideDdp, "// %% after a step that failed", "net.reset();\n", "",
                 "after a step that failed, start afresh");
}
TEST(InsideDdpNotices, AReductionTooMany) {
  expect_noticed(kInsideDdp, "// %% count them", "collectives_of_window(3)", "collectives_of_window(2)", "count them");
}
TEST(InsideDdpNotices, AHookThatSendsNothing) {
  expect_noticed(kInsideDdp, "// %% half precision on the wire", "ddp::fp16_compress_hook()", "ddp::noop_hook()",
                 "half precision on the wire");
}

}  // namespace
}  // namespace lockstep::test
