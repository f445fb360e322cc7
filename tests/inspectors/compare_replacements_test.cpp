// What the values of a candidate are replaced by, and what is said of a candidate whose values were replaced.
#include "inspectors/compare/replacements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compare_judge.h"
#include "inspectors/compare/folders.h"
#include "protocol/error.h"

namespace lockstep::inspect::compare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompareReplacements : public CompareJudge {
 protected:
  /// Judges a candidate, and returns the replacements of its values.
  compare::Run replacements_of(const MadeUpLayout& layout) {
    candidate_ = made_up_run(folder_.in("candidate"), layout);
    ReplacementWriter writer(folder_.in("replacements"), reference_, candidate_);
    judge(reference_, perturbed_, candidate_, {.writer = &writer});
    writer.close();
    return read_run(folder_.in("replacements"));
  }

  static std::vector<std::string> faults_of(const Comparison& result) {
    std::vector<std::string> faults;
    for (const Finding& each : result.findings)
      if (each.severity == Severity::fault) faults.push_back(each.message);
    return faults;
  }
};

// In each layout, what replaces a value is the value itself where nothing is wrong.
TEST_F(CompareReplacements, AreTheReferencesPartsInTheCandidatesUnits) {
  for (const auto& [data_parallel, micro_batches, same_samples] :
       {std::array{1, 1, 1}, {1, 4, 1}, {2, 1, 1}, {4, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
    const compare::Run replacements =
        replacements_of({.data_parallel = data_parallel, .micro_batches = micro_batches, .same_samples = same_samples});
    ASSERT_EQ(replacements.ranks.size(), candidate_.ranks.size());
    for (const Recording& rank : candidate_.ranks) {
      const Replacements of_rank(path_of_recording(folder_.in("replacements"), rank.about.rank));
      for (const Piece& each : rank.pieces) {
        const Piece* found = of_rank.find(rank.names[each.name].name, each);
        if (each.kind == PieceKind::loss) {
          EXPECT_EQ(found, nullptr);
          continue;
        }
        ASSERT_NE(found, nullptr) << name_of(each.kind);
        const std::vector<std::byte> values = of_rank.recording().values(*found);
        const Summary summary = sketch_of(found->element, values.data(), each.box);
        EXPECT_LT(norm(difference(summary.sums, 1, each.summary.sums)), 1e-6 * norm(each.summary.sums));
      }
    }
  }
}

TEST_F(CompareReplacements, AreNoneForWhatIsAValueOnlyAsASum) {
  const compare::Run replacements = replacements_of({.same_samples = 2, .fault = [](int, RecordedValue& value) {
                                                       if (value.kind != PieceKind::forward) return;
                                                       value.flags = Piece::placed | Piece::partial;
                                                       for (float& each : value.values) each /= 2;
                                                     }});
  for (const Recording& rank : replacements.ranks)
    EXPECT_TRUE(std::ranges::none_of(rank.pieces, [](const Piece& each) { return each.kind == PieceKind::forward; }));
}

TEST_F(CompareReplacements, OtherSamplesAreRefused) {
  replacements_of({.data_parallel = 2});
  const Replacements of_rank_1(path_of_recording(folder_.in("replacements"), 1));
  const std::vector<uint64_t> hashes = candidate_.ranks[1].samples.front().hashes;
  EXPECT_NO_THROW(of_rank_1.check_samples({.hashes = hashes}));
  EXPECT_THROW(of_rank_1.check_samples({.hashes = {1, 2, 3, 4}}), Error);
  EXPECT_THROW(of_rank_1.check_samples({.micro_batch = 1, .hashes = hashes}), Error);
}

TEST_F(CompareReplacements, EveryDifferenceIsReported) {
  const MadeUpLayout layout{.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                              if (rank == 1 && value.kind == PieceKind::forward) value.values[5] += 1;
                              if (value.kind == PieceKind::gradient)
                                for (float& each : value.values) each *= 2;
                              if (rank == 0 && value.kind == PieceKind::parameter) value.values[0] += 1;
                            }};
  const compare::Run replacements = replacements_of(layout);
  EXPECT_EQ(faults_of(judge(reference_, perturbed_, candidate_)).size(), 1u);
  const Comparison result = judge(reference_, perturbed_, candidate_, {.replacements = &replacements});
  EXPECT_THAT(faults_of(result),
              ElementsAre(HasSubstr("the output of layer on rank 1"), HasSubstr("it is 2 × the reference's"),
                          HasSubstr("the value after the step of w on rank 0")));
  EXPECT_TRUE(result.not_replaced.empty());
  EXPECT_THAT(result.findings.back().message, HasSubstr("what comes after it does not follow from it"));
}

// The scale of a rank's gradients is found although the losses are wrong.
TEST_F(CompareReplacements, OfRanksWhoseLossesAddUp) {
  const auto adds_up = [](int, RecordedValue& value) {
    if (value.kind == PieceKind::loss || value.kind == PieceKind::backward)
      for (float& each : value.values) each *= value.kind == PieceKind::loss ? 0.51f : 0.5f;
  };
  const compare::Run replacements = replacements_of({.data_parallel = 2, .fault = adds_up});
  EXPECT_THAT(faults_of(judge(reference_, perturbed_, candidate_, {.replacements = &replacements})),
              ElementsAre(HasSubstr("the loss, over ranks 0-1, is not the reference's: it is 1.02 ×")));
  int found = 0;
  for (const Piece& each : candidate_.ranks[1].pieces) {
    if (each.kind != PieceKind::backward) continue;
    const Replacements of_rank(path_of_recording(folder_.in("replacements"), 1));
    const Piece* piece = of_rank.find("layer", each);
    ASSERT_NE(piece, nullptr);
    const std::vector<std::byte> values = of_rank.recording().values(*piece);
    const Summary summary = sketch_of(piece->element, values.data(), each.box);
    EXPECT_LT(norm(difference(summary.sums, 1, each.summary.sums)), 1e-6 * norm(each.summary.sums));
    ++found;
  }
  EXPECT_EQ(found, 1);
}

// Whether they add up is not known.
TEST_F(CompareReplacements, AreNoneForGradientsOfRanksWhoseLossesAreNotANumber) {
  const compare::Run replacements = replacements_of({.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                                                       if (rank == 1 && value.kind == PieceKind::loss)
                                                         value.values[0] = NAN;
                                                     }});
  for (const Recording& rank : replacements.ranks)
    EXPECT_TRUE(std::ranges::none_of(rank.pieces, [](const Piece& each) { return each.kind == PieceKind::backward; }));
}

/// Judges what is in the folder.
class CompareReplacedFolder : public CompareReplacements {
 protected:
  Comparison judged(const std::string& reference) {
    RunFolders folders = reference_in(folder_.in(reference));
    if (folders.perturbed.empty()) folders.perturbed = {folder_.in("perturbed-1"), folder_.in("perturbed-2")};
    set_candidate(folders, folder_.path);
    EXPECT_FALSE(folders.replaced.empty());
    return judge_folders(folders, {});
  }
  const MadeUpLayout wrong_ = {.fault = [](int, RecordedValue& value) {
    if (value.kind == PieceKind::gradient) value.values[0] += 1;
  }};
};

TEST_F(CompareReplacedFolder, ADifferenceThatIsGoneInTheSecondRunIsOneAllTheSame) {
  replacements_of(wrong_);
  made_up_run(folder_.in("replaced"), {});
  const Comparison result = judged("reference");
  EXPECT_FALSE(result.is_same);
  EXPECT_EQ(faults_of(result).size(), 1u);
  EXPECT_THAT(result.findings.back().message, HasSubstr("the difference adds up over several values"));
}

TEST_F(CompareReplacedFolder, ASecondRunThatBreaksOffIsNoAnswer) {
  replacements_of(wrong_);
  std::filesystem::create_directories(folder_.in("replaced"));
  const RecordingWriter torn(path_of_recording(folder_.in("replaced"), 0), {.steps = 1});
  const Comparison result = judged("reference");
  EXPECT_EQ(faults_of(result).size(), 1u);
  EXPECT_THAT(result.findings.back().message, HasSubstr("only the first fault is known"));
}

TEST_F(CompareReplacedFolder, ThatOfAnotherReferenceIsNotJudged) {
  replacements_of(wrong_);
  made_up_run(folder_.in("replaced"), wrong_);
  EXPECT_TRUE(judged("reference").is_replaced);
  made_up_run(folder_.in("other"), {.noise = 5}, true);
  EXPECT_FALSE(judged("other").is_replaced);
}

// A rank goes on with such a value, and what comes after it is no fault of its own for sure.
TEST_F(CompareReplacements, WhatDiffersAndWasNotReplacedIsNamed) {
  const MadeUpLayout layout{.data_parallel = 2, .fault = [](int rank, RecordedValue& value) {
                              if (rank == 1 && value.kind == PieceKind::gradient) {
                                value.flags = Piece::absent;
                                value.values = {0};
                                value.box = {};
                              }
                            }};
  const compare::Run replacements = replacements_of(layout);
  const Comparison result = judge(reference_, perturbed_, candidate_, {.replacements = &replacements});
  EXPECT_THAT(result.not_replaced, ElementsAre("the gradient of w on rank 1"));
}

}  // namespace
}  // namespace lockstep::inspect::compare
