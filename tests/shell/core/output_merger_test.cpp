// Folding with times as numbers: what is one event, in which order, and that no byte is lost.
#include <gtest/gtest.h>

#include <random>

#include "shell/events/output_merger.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

struct FolderTest : testing::Test {
  std::vector<std::string> told;               // "0-1 stdout hello\n"
  std::map<int, std::string> bytes;
  std::map<int, int64_t> consumed;
  Folder folder{[this](Event event) {
                  if (const auto* e = std::get_if<OutputEvent>(&event)) {
                    told.push_back(e->ranks.str() + " " + e->stream + " " + e->bytes);
                    for (int rank : e->ranks) bytes[rank] += e->bytes;
                  } else if (const auto* v = std::get_if<ValueEvent>(&event)) {
                    told.push_back(v->ranks.str() + " value " + v->text);
                  }
                },
                [this](int rank, int64_t n) { consumed[rank] += n; }};
  Folder::Clock::time_point at(int ms) { return Folder::Clock::time_point(milliseconds(ms)); }
  void out(int rank, const std::string& text, int ms = 0) { folder.output(rank, 1, "stdout", text, at(ms)); }
  using Told = std::vector<std::string>;
};

TEST_F(FolderTest, EqualLinesGoOutAtOnce) {
  folder.expect({0, 1});
  out(0, "a\n");
  EXPECT_TRUE(told.empty());
  out(1, "a\n");
  EXPECT_EQ(told, (Told{"0-1 stdout a\n"}));
  EXPECT_FALSE(folder.deadline());
  EXPECT_EQ(consumed[0], 2);
}

TEST_F(FolderTest, ChunksNeedNotBeCutAlike) {
  folder.expect({0, 1});
  out(0, "one\ntw");
  out(1, "o");
  out(1, "ne\ntwo\n");
  EXPECT_EQ(told, (Told{"0-1 stdout one\n"}));
  out(0, "o\n");
  EXPECT_EQ(told.back(), "0-1 stdout two\n");
}

TEST_F(FolderTest, WhatDiffersIsHeldAndComesInRankOrder) {
  folder.expect({0, 1, 2});
  out(2, "z\n", 10);
  out(1, "y\n", 20);
  out(0, "x\n", 30);
  EXPECT_EQ(folder.deadline(), at(210));
  folder.due(at(230));
  EXPECT_EQ(told, (Told{"0 stdout x\n", "1 stdout y\n", "2 stdout z\n"}));
}

TEST_F(FolderTest, SomeAlikeAmongOthers) {
  folder.expect({0, 1, 2});
  out(0, "x\n");
  out(1, "y\n");
  out(2, "x\n");
  folder.flush();
  EXPECT_EQ(told, (Told{"0,2 stdout x\n", "1 stdout y\n"}));
}

TEST_F(FolderTest, ARankThatIsAloneIsNotHeld) {
  folder.expect({3});
  out(3, "progress");
  EXPECT_EQ(told, (Told{"3 stdout progress"}));
}

TEST_F(FolderTest, ARankThatGotAheadIsNotHeldUntilTheOthersCatchUp) {
  folder.expect({0, 1});
  out(0, "a\n", 0);
  folder.due(at(200));
  out(0, "b\n", 250);
  EXPECT_EQ(told, (Told{"0 stdout a\n", "0 stdout b\n"}));
  out(1, "a\nb\n", 300);
  EXPECT_EQ(told.back(), "1 stdout a\nb\n");
  out(0, "c\n", 310);
  out(1, "c\n", 320);
  EXPECT_EQ(told.back(), "0-1 stdout c\n") << "in step again";
}

TEST_F(FolderTest, NobodyWaitsForARankThatHasLeft) {
  folder.expect({0, 1});
  out(0, "a\n");
  folder.left(1, at(1));
  EXPECT_EQ(told, (Told{"0 stdout a\n"}));
}

TEST_F(FolderTest, ValuesKeepTheirPlaceBetweenOutput) {
  folder.expect({0, 1});
  for (int rank : {0, 1}) {
    out(rank, "a\n");
    folder.value(rank, 1, "7", 7, at(0));
    folder.value(rank, 1, std::to_string(rank), rank, at(0));
    out(rank, "b\n");
  }
  folder.flush();
  EXPECT_EQ(told, (Told{"0-1 stdout a\n", "0-1 value 7", "0 value 0", "0 stdout b\n", "1 value 1", "1 stdout b\n"}));
}

TEST_F(FolderTest, StreamsAreNotMixed) {
  folder.expect({0, 1});
  folder.output(0, 1, "stdout", "x\n", at(0));
  folder.output(1, 1, "stderr", "x\n", at(0));
  folder.flush();
  EXPECT_EQ(told, (Told{"0 stdout x\n", "1 stderr x\n"}));
}

TEST_F(FolderTest, TextWithoutANewlineIsFoldedWhenItsTimeIsOver) {
  folder.expect({0, 1});
  out(0, "50%", 0);
  out(1, "50%", 10);
  folder.due(at(210));
  EXPECT_EQ(told, (Told{"0-1 stdout 50%"}));
}

TEST_F(FolderTest, CharactersAreNotCutInTwo) {
  folder.expect({0, 1});
  out(0, "\xc3", 0);
  folder.due(at(200));
  EXPECT_TRUE(told.empty());
  out(0, "\xa9\n", 210);
  folder.due(at(500));
  EXPECT_EQ(told, (Told{"0 stdout \xc3\xa9\n"}));
}

TEST_F(FolderTest, LongDifferencesDoNotWait) {
  folder.expect({0, 1});
  out(0, std::string(Folder::kLongDifference, 'a') + "a\n");
  EXPECT_TRUE(told.empty());
  out(1, "b\n");
  EXPECT_FALSE(told.empty());
}

TEST_F(FolderTest, Rule5NoByteIsLostOrMisplaced) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    bytes.clear();
    consumed.clear();
    folder.expect({0, 1, 2});
    std::string common;
    for (int i = 0; i < 40; ++i) common += "line " + std::to_string(random() % 5) + (random() % 4 ? "\n" : "");
    std::map<int, std::string> sent, left;
    for (int rank : {0, 1, 2}) {
      sent[rank] = common;
      if (random() % 2) sent[rank].insert(random() % sent[rank].size(), "different\n");
      left[rank] = sent[rank];
    }
    int ms = 0;
    while (!left.empty()) {
      auto it = std::next(left.begin(), static_cast<long>(random() % left.size()));
      const size_t n = std::min<size_t>(it->second.size(), 1 + random() % 60);
      out(it->first, it->second.substr(0, n), ms);
      it->second.erase(0, n);
      if (it->second.empty()) {
        folder.left(it->first, at(ms));
        left.erase(it);
      }
      ms += static_cast<int>(random() % 100);
      if (const auto deadline = folder.deadline(); deadline && *deadline <= at(ms)) folder.due(at(ms));
    }
    folder.flush();
    for (int rank : {0, 1, 2}) {
      ASSERT_EQ(bytes[rank], sent[rank]);
      ASSERT_EQ(consumed[rank], static_cast<int64_t>(sent[rank].size()));
    }
  }
}

TEST(FoldErrors, EqualOnesOnceAndTheCauseLast) {
  const protocol::CellError cause{.type = "E", .message = "m", .where = "cell 1, line 2"};
  protocol::CellError consequence{.type = "E", .message = "peer"};
  consequence.root_cause = false;
  const auto events = fold_errors(1, {{0, cause}, {1, consequence}, {2, consequence}});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].ranks, (RankSet{1, 2}));
  EXPECT_EQ(events[1].ranks, RankSet{0});
  EXPECT_EQ(events[1].where, "cell 1, line 2");
}

}  // namespace
}  // namespace lockstep::shell
