// The judge of `lockstep compare` on runs that are made up: each fault is found at its first value, with its cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compare_judge.h"
#include "protocol/error.h"

namespace lockstep::inspect::compare {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CompareJudge, TheSameTrainingInEveryLayout) {
  for (const auto& [data_parallel, micro_batches, same_samples] :
       {std::array{1, 1, 1}, {1, 4, 1}, {2, 1, 1}, {4, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
    const Comparison result =
        compared({.data_parallel = data_parallel, .micro_batches = micro_batches, .same_samples = same_samples});
    ASSERT_EQ(result.findings.size(), 1u) << result.findings.front().message;
    EXPECT_THAT(result.findings.front().message, StartsWith("same training: "));
    EXPECT_EQ(result.findings.front().verdict, Verdict::ok);
    EXPECT_TRUE(result.is_same);
    EXPECT_LT(result.largest, 1);
    EXPECT_EQ(result.differing, 0u);
    EXPECT_GE(result.compared, 6u);
  }
}

TEST_F(CompareJudge, OtherWeightsAreFoundFirst) {
  const Finding fault = fault_of({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                    if (rank == 1 && value.kind != PieceKind::loss) value.values[0] += 1;
                                  }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, StartsWith("step 0: the initial value of w on rank 1 "));
  EXPECT_THAT(fault.message, HasSubstr("begin with other weights"));
}

TEST_F(CompareJudge, AnOutputOfOneRank) {
  const Finding fault = fault_of({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                    if (rank == 1 && value.kind == PieceKind::forward) value.values[5] += 1e-3f;
                                  }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_EQ(fault.kind, FindingKind::forward);
  EXPECT_THAT(fault.message, HasSubstr("rank 1 computes something else here"));
}

TEST_F(CompareJudge, TheMicroBatchOfAnOutput) {
  const Finding fault = fault_of({.micro_batches = 4, .fault = [](int, RecordedValue& value) {
                                    if (value.micro_batch == 2 && value.kind == PieceKind::forward)
                                      value.values[1] += 1;
                                  }});
  EXPECT_THAT(fault.message, HasSubstr("in micro-batch 2"));
}

// The sums of several pieces are not judged by the first of them.
TEST_F(CompareJudge, APartialValueThatEachRankHasAllOf) {
  const Finding fault = fault_of({.same_samples = 2, .fault = [](int, RecordedValue& value) {
                                    if (value.kind == PieceKind::forward) value.flags = Piece::placed | Piece::partial;
                                  }});
  EXPECT_THAT(fault.message, HasSubstr("the output of layer, over ranks 0-1, is not the reference's: it is 2 ×"));
}

TEST_F(CompareJudge, AFactorOfAParameterIsNoneOfItsGradient) {
  const Finding fault = fault_of({.micro_batches = 4, .fault = [](int, RecordedValue& value) {
                                    if (value.kind == PieceKind::parameter)
                                      for (float& each : value.values) each *= 4;
                                  }});
  EXPECT_THAT(fault.message, HasSubstr("it is 4 × the reference's"));
  EXPECT_THAT(fault.message, HasSubstr("so the update is another"));
}

TEST_F(CompareJudge, LossesOfMicroBatchesThatAreNotDivided) {
  const Finding fault = fault_of({.micro_batches = 4, .fault = [](int, RecordedValue& value) {
                                    if (value.kind == PieceKind::loss || value.kind == PieceKind::backward)
                                      for (float& each : value.values) each *= 4;
                                  }});
  EXPECT_THAT(fault.message, StartsWith("step 0: the loss is not the reference's: it is 4 × "));
  EXPECT_THAT(fault.message, HasSubstr("are not divided by their number"));
}

TEST_F(CompareJudge, LossesThatAddUpOverRanksAreNoFault) {
  const Comparison result = compared({.data_parallel = 2, .fault = [](int, RecordedValue& value) {
                                        if (value.kind == PieceKind::loss || value.kind == PieceKind::backward)
                                          for (float& each : value.values) each /= 2;
                                      }});
  EXPECT_EQ(result.differing, 0u) << result.findings.front().message;
}

TEST_F(CompareJudge, AGradientThatIsNotReduced) {
  // Ranks 0 and 1 have a part each, which add up.
  const auto part = [](int rank, RecordedValue& value) {
    if (value.kind != PieceKind::gradient) return;
    for (size_t i = 0; i < value.values.size(); ++i) {
      const float other = static_cast<float>(i % 3) / 7.f;
      value.values[i] = rank % 2 == 0 ? value.values[i] - other : other;
    }
  };
  const Finding same_samples = fault_of({.same_samples = 2, .fault = part});
  EXPECT_EQ(same_samples.ranks, (RankSet{0, 1}));
  EXPECT_THAT(same_samples.message, StartsWith("step 0: the gradient of w on ranks 0-1 "));
  EXPECT_THAT(same_samples.message, HasSubstr("it was not reduced over ranks 0-1, which work on the same samples"));
  const Finding data_parallel = fault_of({.data_parallel = 2, .fault = [&](int rank, RecordedValue& value) {
                                            part(rank, value);
                                            if (value.kind == PieceKind::gradient)
                                              for (float& each : value.values) each *= 2;
                                          }});
  EXPECT_THAT(data_parallel.message, HasSubstr("it was not averaged over the data-parallel ranks 0-1"));
}

TEST_F(CompareJudge, ASumForTheMean) {
  for (const auto& [factor, words] : {std::pair{2.f, "where the mean is meant"}, {.5f, "divided once too often"}}) {
    const Finding fault = fault_of({.data_parallel = 2, .fault = [factor = factor](int, RecordedValue& value) {
                                      if (value.kind == PieceKind::gradient)
                                        for (float& each : value.values) each *= factor;
                                    }});
    EXPECT_THAT(fault.message, HasSubstr(words));
  }
}

TEST_F(CompareJudge, SamplesThatAreNotTheReferences) {
  const Finding fault = fault_of({.data_parallel = 2, .data_fault = [](int rank, std::vector<uint64_t>& hashes) {
                                    if (rank == 1) hashes[2] = 1;
                                  }});
  EXPECT_EQ(fault.kind, FindingKind::input);
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, HasSubstr("1 of the 4 samples of rank 1 are not in the reference's batch"));
}

TEST_F(CompareJudge, OneShardReadByAllRanks) {
  const Finding fault = fault_of({.data_parallel = 2, .data_fault = [](int, std::vector<uint64_t>& hashes) {
                                    std::iota(hashes.begin(), hashes.end(), 1000);
                                  }});
  EXPECT_THAT(fault.message, HasSubstr("4 of the 8 samples of the reference's batch reach no rank"));
  EXPECT_THAT(fault.message, HasSubstr("ranks 0-1 are given the same samples"));
}

TEST_F(CompareJudge, ASampleThatIsUsedTwice) {
  const Finding fault = fault_of({.data_parallel = 2, .data_fault = [](int rank, std::vector<uint64_t>& hashes) {
                                    if (rank == 1) hashes[0] = 1000;
                                  }});
  EXPECT_THAT(fault.message,
              HasSubstr("1 of the 8 samples of the reference's batch reach no rank, 1 are used more than once"));
}

TEST_F(CompareJudge, PiecesOfDTensorsAndPartialSums) {
  const auto divided = [](int rank, RecordedValue& value) {
    value.flags = Piece::placed;
    if (value.kind == PieceKind::forward) {  // by outputs
      Values half;
      for (size_t i = 0; i < value.values.size(); ++i)
        if (static_cast<int>(i % 4) / 2 == rank) half.push_back(value.values[i]);
      value.values = half;
      value.box.offset[1] = rank * 2;
      value.box.size[1] = 2;
    } else if (value.kind == PieceKind::backward) {  // terms of a sum
      value.flags |= Piece::partial;
      for (float& each : value.values) each *= rank == 0 ? .75f : .25f;
    } else if (value.kind == PieceKind::parameter) {
      value.values.assign(value.values.begin() + rank * 12, value.values.begin() + (rank + 1) * 12);
      value.box.offset[0] = rank * 3;
      value.box.size[0] = 3;
    }
  };
  EXPECT_EQ(compared({.same_samples = 2, .fault = divided}).differing, 0u);
  const Finding fault = fault_of({.same_samples = 2, .fault = [&](int rank, RecordedValue& value) {
                                    const Values whole = value.values;
                                    divided(rank, value);
                                    if (value.kind == PieceKind::parameter && rank == 1)
                                      std::copy_n(whole.begin(), 12, value.values.begin());
                                  }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, HasSubstr("rank 1 has the shard of rank 0"));
}

TEST_F(CompareJudge, APlainTensorThatIsANthOfADimension) {
  const auto half = [](int rank, RecordedValue& value) {
    if (value.kind != PieceKind::gradient) return;
    value.values.assign(value.values.begin() + rank * 12, value.values.begin() + (rank + 1) * 12);
    value.box = {{3, kOutputs}, {0, 0}, {3, kOutputs}};
  };
  EXPECT_EQ(compared({.same_samples = 2, .fault = half}).differing, 0u);
  const Finding fault = fault_of({.same_samples = 2, .fault = [&](int, RecordedValue& value) { half(0, value); }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, HasSubstr("rank 1 has shard 0 of it"));
}

TEST_F(CompareJudge, APlainTensorThatIsAnNthOfEachBlockOfADimension) {
  const auto cut = [](int rank, RecordedValue& value) {
    Values part;
    if (value.kind == PieceKind::gradient) {  // three blocks of two rows
      for (int block = 0; block < 3; ++block)
        part.insert(part.end(), value.values.begin() + (block * 2 + rank) * kOutputs,
                    value.values.begin() + (block * 2 + rank + 1) * kOutputs);
      value.box = {{3, kOutputs}, {0, 0}, {3, kOutputs}};
    } else if (value.kind == PieceKind::forward) {  // two blocks of two columns
      for (size_t i = 0; i < value.values.size(); ++i)
        if (static_cast<int>(i % 2) == rank) part.push_back(value.values[i]);
      value.box.shape[1] = value.box.size[1] = 2;
    } else {
      return;
    }
    value.values = part;
  };
  EXPECT_EQ(compared({.same_samples = 2, .fault = cut}).differing, 0u);
  const Finding fault = fault_of({.same_samples = 2, .fault = [&](int, RecordedValue& value) { cut(0, value); }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, HasSubstr("rank 1 has shard 0 of it"));
}

TEST_F(CompareJudge, AShapeThatIsNoPart) {
  const Finding fault = fault_of({.fault = [](int, RecordedValue& value) {
    if (value.kind != PieceKind::gradient) return;
    value.values.resize(20);
    value.box = {{5, kOutputs}, {0, 0}, {5, kOutputs}};
  }});
  EXPECT_THAT(fault.message, HasSubstr("no part of the reference's value has its shape"));
}

TEST_F(CompareJudge, BatchNormWithoutSynchronisationIsMeant) {
  reference_ = made_up_run(folder_.in("reference"), {.type = "BatchNorm1d"}, true);
  const Finding fault = fault_of({.data_parallel = 2, .fault = [](int, RecordedValue& value) {
                                    if (value.kind == PieceKind::forward)
                                      for (float& each : value.values) each += .01f;
                                  }});
  EXPECT_EQ(fault.kind, FindingKind::setting);
  EXPECT_THAT(fault.message, HasSubstr("other training by definition"));
}

TEST_F(CompareJudge, NaNIsADifference) {
  const Finding fault = fault_of({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                    if (rank == 1 && value.kind == PieceKind::gradient) value.values[3] = NAN;
                                  }});
  EXPECT_EQ(fault.ranks, RankSet{1});
  EXPECT_THAT(fault.message, HasSubstr("1 of its elements are NaN or Inf, and 0 of the reference's"));
}

TEST_F(CompareJudge, NaNInThePlaceOfAZeroIsADifference) {  // the sums of the sketches are equal
  const auto with = [](float value) {
    return [value](int, RecordedValue& each) {
      if (each.kind == PieceKind::gradient) each.values[3] = value;
    };
  };
  reference_ = made_up_run(folder_.in("reference"), {.fault = with(0)}, true);
  for (int i = 0; i < 4; ++i)
    perturbed_[static_cast<size_t>(i)] =
        made_up_run(folder_.in("perturbed-" + std::to_string(i + 1)), {.noise = i + 1., .fault = with(0)});
  EXPECT_EQ(compared({.data_parallel = 2, .fault = with(0)}).differing, 0u);
  EXPECT_THAT(fault_of({.data_parallel = 2, .fault = with(NAN)}).message,
              HasSubstr("1 of its elements are NaN or Inf"));
  const compare::Run zero = made_up_run(folder_.in("zero"), {.fault = with(0)});
  const Comparison pair = judge_same_layout(zero, made_up_run(folder_.in("nan"), {.fault = with(NAN)}), {.rtol = 1});
  EXPECT_EQ(pair.differing, 1u);
  EXPECT_THAT(pair.findings.front().message, HasSubstr("what of it is NaN or Inf"));
}

TEST_F(CompareJudge, AMissingGradientIsAFault) {
  const Finding fault = fault_of({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                    if (rank == 1 && value.kind == PieceKind::gradient) value.flags = Piece::absent;
                                  }});
  EXPECT_EQ(fault.verdict, Verdict::missing);
  EXPECT_THAT(fault.message, HasSubstr("is None on rank 1"));
}

TEST_F(CompareJudge, TheUnitOfADifferenceIsSaid) {
  const auto other = [](int, RecordedValue& value) {
    if (value.kind == PieceKind::gradient) value.values[0] += .01f;
  };
  const auto of = [&](const Comparison& result) { return result.findings.front().message; };
  EXPECT_THAT(fault_of({.fault = other}).message, HasSubstr("× what rounding explains)"));
  const compare::Run one = made_up_run(folder_.in("one"), {}), two = made_up_run(folder_.in("two"), {.fault = other});
  EXPECT_THAT(of(judge_same_layout(one, two, {.rtol = 1e-6})), HasSubstr("× --rtol)"));
  EXPECT_THAT(of(judge_same_layout(one, two)), ::testing::Not(HasSubstr("×")));
  EXPECT_THAT(of(judge_same_layout(one, one)), HasSubstr("their sketches have the same bits"));
  EXPECT_THAT(of(judge(reference_, {}, two, {.rtol = .1})), HasSubstr("× --rtol"));
}

TEST_F(CompareJudge, AValueOfRoundingsSizeSaysNothing) {
  const auto zero = [](int seed) {
    return [seed](int, RecordedValue& value) {
      if (value.kind == PieceKind::gradient) value.values = made_up(value.values.size(), seed);
    };
  };
  reference_ = made_up_run(folder_.in("reference"), {.fault = zero(50)}, true);
  perturbed_[0] = made_up_run(folder_.in("perturbed-1"), {.noise = 1, .fault = zero(51)});
  const Comparison result = compared({.fault = zero(52)});
  EXPECT_EQ(result.differing, 0u);
  EXPECT_THAT(result.says_nothing, ::testing::ElementsAre("the gradient of w"));
}

TEST_F(CompareJudge, ReferencesThatCanNotBe) {
  const compare::Run candidate = made_up_run(folder_.in("candidate"), {.data_parallel = 2});
  EXPECT_THROW(judge(candidate, {}, candidate), Error);
  EXPECT_THROW(judge(perturbed_[0], {}, candidate), Error);
}

TEST_F(CompareJudge, TwoRunsOfOneLayoutAreComparedPieceByPiece) {
  const MadeUpLayout layout{.data_parallel = 2, .micro_batches = 2};
  const compare::Run one = made_up_run(folder_.in("one"), layout), same = made_up_run(folder_.in("same"), layout);
  EXPECT_EQ(judge_same_layout(one, same).differing, 0u);
  MadeUpLayout other = layout;
  other.fault = [](int rank, RecordedValue& value) {
    if (rank == 1 && value.kind == PieceKind::gradient) value.values[0] = std::nextafter(value.values[0], 10.f);
  };
  const Comparison result = judge_same_layout(one, made_up_run(folder_.in("other"), other));
  EXPECT_EQ(result.differing, 1u);
  EXPECT_EQ(result.findings.front().ranks, RankSet{1});
  EXPECT_EQ(judge_same_layout(one, made_up_run(folder_.in("other"), other), {.rtol = 1e-5}).differing, 0u);
  EXPECT_THROW(judge_same_layout(one, made_up_run(folder_.in("more"), {.data_parallel = 4})), Error);
}

}  // namespace
}  // namespace lockstep::inspect::compare
