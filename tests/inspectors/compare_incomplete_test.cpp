// The judge of `lockstep compare` where a run has not recorded all that the other has: there is no "same training", and
// no cause claims more than what was compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "compare_judge.h"
#include "protocol/error.h"

namespace lockstep::inspect::compare {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using CompareIncomplete = CompareJudge;

TEST_F(CompareIncomplete, WhatWasNotRecordedIsSaid) {
  const Comparison result = compared({.fault = [](int, RecordedValue& value) {
    if (value.kind == PieceKind::forward || value.kind == PieceKind::backward) value.name = "other";
  }});
  EXPECT_FALSE(result.is_same);
  ASSERT_EQ(result.findings.size(), 3u);
  EXPECT_THAT(result.findings[0].message, StartsWith("what was recorded by both is the same, and that is not all: "));
  EXPECT_EQ(result.findings[0].verdict, Verdict::unsupported);
  EXPECT_THAT(result.findings[1].message, HasSubstr("the output of layer, the gradient of the output of layer"));
  EXPECT_THAT(result.only_in_candidate,
              ::testing::ElementsAre("the output of other", "the gradient of the output of other"));
}

TEST_F(CompareIncomplete, WhatSomeRanksHaveNotRecordedIsSaid) {
  const Comparison result = compared({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                        value.is_left_out = rank == 1 && value.kind == PieceKind::gradient;
                                      }});
  EXPECT_FALSE(result.is_same);
  EXPECT_EQ(result.differing, 0u);
  EXPECT_THAT(result.not_recorded, ::testing::ElementsAre("the gradient of w on rank 1"));
}

TEST_F(CompareIncomplete, AnOutputThatAMicroBatchHasNotRecordedIsSaid) {
  const Comparison result =
      compared({.data_parallel = 2, .micro_batches = 2, .fault = [](int rank, RecordedValue& value) {
                  value.is_left_out = rank == 0 && value.micro_batch == 1 && value.kind == PieceKind::forward;
                }});
  EXPECT_FALSE(result.is_same);
  EXPECT_THAT(result.not_recorded, ::testing::ElementsAre("the output of layer on rank 0"));
}

TEST_F(CompareIncomplete, AnOutputThatTheReferenceHasOfSomeMicroBatchesIsSaid) {
  const auto left_out = [](int, RecordedValue& value) {
    value.is_left_out = value.micro_batch == 1 && value.kind == PieceKind::forward;
  };
  reference_ = made_up_run(folder_.in("reference"), {.micro_batches = 2, .fault = left_out}, true);
  for (size_t i = 0; i < perturbed_.size(); ++i)
    perturbed_[i] = made_up_run(folder_.in("perturbed-" + std::to_string(i + 1)),
                                {.micro_batches = 2, .noise = static_cast<double>(i) + 1, .fault = left_out});
  const Comparison result = compared({.data_parallel = 2});
  EXPECT_EQ(result.differing, 0u) << result.findings.front().message;
  EXPECT_THAT(result.only_in_candidate, ::testing::ElementsAre("the output of layer"));
}

TEST_F(CompareIncomplete, AModuleThatSomeMicroBatchesDoNotCall) {
  const auto called_by = [](const std::function<bool(int rank, uint32_t micro_batch)>& calls) {
    return [calls](int rank, RecordedValue& value) {
      const bool is_of_module = value.kind == PieceKind::forward || value.kind == PieceKind::backward;
      value.is_left_out = is_of_module && !calls(rank, value.micro_batch);
    };
  };
  const auto odd = called_by([](int, uint32_t micro_batch) { return micro_batch % 2 == 1; });
  reference_ = made_up_run(folder_.in("reference"), {.micro_batches = 4, .fault = odd}, true);
  for (size_t i = 0; i < perturbed_.size(); ++i)
    perturbed_[i] = made_up_run(folder_.in("perturbed-" + std::to_string(i + 1)),
                                {.micro_batches = 4, .noise = static_cast<double>(i) + 1, .fault = odd});
  EXPECT_TRUE(compared({.micro_batches = 4, .fault = odd}).is_same);
  EXPECT_TRUE(compared({.data_parallel = 2, .micro_batches = 2, .fault = odd}).is_same);
  const auto odd_on_one = called_by([](int rank, uint32_t micro_batch) { return rank == 0 && micro_batch == 1; });
  const Comparison less = compared({.data_parallel = 2, .micro_batches = 2, .fault = odd_on_one});
  EXPECT_EQ(less.differing, 0u) << less.findings.front().message;
  EXPECT_THAT(less.not_recorded,
              ::testing::ElementsAre("the output of layer on rank 1", "the gradient of the output of layer on rank 1"));
  const auto wrong = [&](int rank, RecordedValue& value) {
    odd(rank, value);
    if (rank == 1 && value.kind == PieceKind::forward) value.values[5] += 1e-3f;
  };
  EXPECT_THAT(fault_of({.data_parallel = 2, .micro_batches = 2, .fault = wrong}).message,
              StartsWith("step 0: the output of layer on rank 1"));
}

TEST_F(CompareIncomplete, AReferenceWithAPartOfAValueIsRefused) {
  reference_ = made_up_run(folder_.in("reference"),
                           {.fault =
                                [](int, RecordedValue& value) {
                                  if (value.kind == PieceKind::gradient) value.box.shape[0] = 100;
                                }},
                           true);
  EXPECT_THROW(compared({}), Error);
}

TEST_F(CompareIncomplete, NamesBehindAPrefixAreNamed) {
  const Comparison result = compared({.fault = [](int, RecordedValue& value) {
    if (value.kind != PieceKind::loss) value.name = "model." + value.name;
  }});
  EXPECT_FALSE(result.is_same);
  EXPECT_TRUE(std::ranges::any_of(result.findings, [](const Finding& each) {
    return each.message.starts_with("the names of the candidate are those of the reference behind \"model.\"");
  }));
}

TEST_F(CompareIncomplete, ACauseClaimsNoMoreThanWasCompared) {
  const auto other_update = [](int rank, RecordedValue& value) {
    if (value.kind == PieceKind::parameter) value.values[0] += 1;
    if (value.kind == PieceKind::forward && rank == 1) value.name = "other";
  };
  EXPECT_THAT(fault_of({.data_parallel = 2, .fault = other_update}).message,
              HasSubstr("its gradient and its value before are the reference's, so the update is another"));
  const auto unknown_gradient = [&](int rank, RecordedValue& value) {
    other_update(rank, value);
    value.is_left_out = value.kind == PieceKind::gradient;
  };
  EXPECT_THAT(fault_of({.data_parallel = 2, .fault = unknown_gradient}).message,
              ::testing::Not(HasSubstr("the update is another")));
  const auto unknown_weights = [](int rank, RecordedValue& value) {
    value.is_left_out = value.kind == PieceKind::initial;
    if (rank == 1 && value.kind == PieceKind::forward) value.values[5] += 1e-3f;
  };
  EXPECT_THAT(
      fault_of({.data_parallel = 2, .fault = unknown_weights}).message,
      HasSubstr("what was compared before it is the reference's, so rank 1 computes something else here, or in"));
}

TEST_F(CompareIncomplete, SeveralRanksWithoutSamplesAreRefused) {
  const auto none = [](int, std::vector<uint64_t>& hashes) { hashes.clear(); };
  EXPECT_THROW(compared({.data_parallel = 2, .data_fault = none}), Error);
  reference_ = made_up_run(folder_.in("reference"), {.data_fault = none}, true);
  EXPECT_THROW(compared({.data_parallel = 2}), Error);
  EXPECT_TRUE(compared({.data_fault = none}).is_same);
}

TEST_F(CompareIncomplete, ADamagedRecordingIsNotTheSame) {
  candidate_ = made_up_run(folder_.in("candidate"), {});
  EXPECT_TRUE(judge(reference_, perturbed_, candidate_).is_same);
  const std::string path = folder_.in("candidate/rank-0.rec");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);  // of the end, after a whole step
  const Comparison result = judge(reference_, perturbed_, read_run(folder_.in("candidate")));
  EXPECT_FALSE(result.is_same);
  EXPECT_EQ(result.findings.front().verdict, Verdict::unsupported);
  EXPECT_THAT(result.findings.back().message, StartsWith("the candidate: it is damaged, or cut off, at byte "));
}

TEST_F(CompareIncomplete, APieceThatARankOfOneLayoutLacks) {
  MadeUpLayout layout{.data_parallel = 2};
  const compare::Run whole = made_up_run(folder_.in("whole"), layout);
  layout.fault = [](int rank, RecordedValue& value) {
    value.is_left_out = rank == 1 && value.kind == PieceKind::gradient;
  };
  const compare::Run less = made_up_run(folder_.in("less"), layout);
  const Comparison missing = judge_same_layout(whole, less), more = judge_same_layout(less, whole);
  EXPECT_EQ(missing.findings.front().verdict, Verdict::missing);
  EXPECT_THAT(missing.findings.front().message, StartsWith("step 0: the gradient of w was not recorded on rank 1"));
  EXPECT_FALSE(more.is_same);
  EXPECT_THAT(more.only_in_candidate, ::testing::ElementsAre("the gradient of w on rank 1"));
}

}  // namespace
}  // namespace lockstep::inspect::compare
