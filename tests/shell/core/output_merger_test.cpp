// Folding with times as numbers: what is one event, in which order, and that no byte is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "shell/events/output_merger.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

struct OutputMergerTest : testing::Test {
  std::vector<std::string> reported;               // "0-1 stdout hello\n"
  std::vector<int64_t> numbers;  // of the values
  std::map<int, std::string> bytes;
  std::map<int, int64_t> consumed;
  OutputMerger merger{[this](Event event) {
                        if (const auto* e = std::get_if<OutputEvent>(&event)) {
                          reported.push_back(e->ranks.str() + " " + std::string(to_string(e->stream)) + " " + e->bytes);
                          for (int rank : e->ranks) bytes[rank] += e->bytes;
                        } else if (const auto* v = std::get_if<ValueEvent>(&event)) {
                          reported.push_back(v->ranks.str() + " value " + v->text);
                          numbers.push_back(v->number);
                        }
                      },
                      [this](const RankSet& ranks, int64_t n) {
                        for (const int rank : ranks) consumed[rank] += n;
                      },
                      [this](const RankSet& ranks, int64_t, const std::string& mark) {
                        reported.push_back(ranks.str() + " mark " + mark);
                      }};
  OutputMerger::Clock::time_point at(int ms) { return OutputMerger::Clock::time_point(milliseconds(ms)); }
  void out(int rank, const std::string& text, int ms = 0) {
    merger.output(rank, 1, Stream::standard_output, text, at(ms));
  }
  void value(int rank, const nlohmann::json& number, int ms = 0, bool as_range = false, const std::string& label = "") {
    const std::string text = number.is_string() ? number.get<std::string>() : number.dump();
    merger.value(rank, {.cell = 1, .text = text, .data = number, .as_range = as_range, .label = label}, at(ms));
  }
  using Reported = std::vector<std::string>;
};

TEST_F(OutputMergerTest, EqualLinesGoOutAtOnce) {
  merger.expect({0, 1});
  out(0, "a\n");
  EXPECT_TRUE(reported.empty());
  out(1, "a\n");
  EXPECT_EQ(reported, (Reported{"0-1 stdout a\n"}));
  EXPECT_FALSE(merger.deadline());
  EXPECT_EQ(consumed[0], 2);
}

TEST_F(OutputMergerTest, AThousandRanksFitAScreen) {
  std::vector<int> ranks(1024);
  std::iota(ranks.begin(), ranks.end(), 0);
  merger.expect(RankSet(ranks));
  std::shuffle(ranks.begin(), ranks.end(), std::mt19937(3));
  for (const int rank : ranks) out(rank, rank == 17 ? "alike\nnan\n" : "alike\n0.5\n");
  merger.due(at(1000));
  EXPECT_EQ(reported, (Reported{"0-1023 stdout alike\n", "0-16,18-1023 stdout 0.5\n", "17 stdout nan\n"}));
}

TEST_F(OutputMergerTest, ChunksNeedNotBeCutAlike) {
  merger.expect({0, 1});
  out(0, "one\ntw");
  out(1, "o");
  out(1, "ne\ntwo\n");
  EXPECT_EQ(reported, (Reported{"0-1 stdout one\n"}));
  out(0, "o\n");
  EXPECT_EQ(reported.back(), "0-1 stdout two\n");
}

TEST_F(OutputMergerTest, WhatDiffersIsHeldAndComesInRankOrder) {
  merger.expect({0, 1, 2});
  out(2, "z\n", 10);
  out(1, "y\n", 20);
  out(0, "x\n", 30);
  EXPECT_EQ(merger.deadline(), at(210));
  merger.due(at(230));
  EXPECT_EQ(reported, (Reported{"0 stdout x\n", "1 stdout y\n", "2 stdout z\n"}));
}

TEST(OutputMerger, WhatDiffersIsHeldForTheFoldTime) {
  std::vector<RankSet> reported;
  OutputMerger merger([&](Event event) { reported.push_back(std::get<OutputEvent>(event).ranks); },
                      [](const RankSet&, int64_t) {}, nullptr, milliseconds(5000));
  const auto at = [](int ms) { return OutputMerger::Clock::time_point(milliseconds(ms)); };
  merger.expect({0, 1});
  merger.output(0, 1, Stream::standard_output, "late\n", at(10));
  merger.due(at(5009));
  EXPECT_TRUE(reported.empty());
  EXPECT_EQ(merger.deadline(), at(5010));
  merger.output(1, 1, Stream::standard_output, "late\n", at(5009));
  EXPECT_EQ(reported, (std::vector<RankSet>{{0, 1}}));
}

TEST_F(OutputMergerTest, SomeAlikeAmongOthers) {
  merger.expect({0, 1, 2});
  out(0, "x\n");
  out(1, "y\n");
  out(2, "x\n");
  merger.flush();
  EXPECT_EQ(reported, (Reported{"0,2 stdout x\n", "1 stdout y\n"}));
}

TEST_F(OutputMergerTest, ARankThatIsAloneIsNotHeld) {
  merger.expect({3});
  out(3, "progress");
  EXPECT_EQ(reported, (Reported{"3 stdout progress"}));
}

TEST_F(OutputMergerTest, ARankThatGotAheadIsNotHeldUntilTheOthersCatchUp) {
  merger.expect({0, 1});
  out(0, "a\n", 0);
  merger.due(at(200));
  out(0, "b\n", 250);
  EXPECT_EQ(reported, (Reported{"0 stdout a\n", "0 stdout b\n"}));
  out(1, "a\nb\n", 300);
  EXPECT_EQ(reported.back(), "1 stdout a\nb\n");
  out(0, "c\n", 310);
  out(1, "c\n", 320);
  EXPECT_EQ(reported.back(), "0-1 stdout c\n") << "in step again";
}

TEST_F(OutputMergerTest, NobodyWaitsForARankThatHasLeft) {
  merger.expect({0, 1});
  out(0, "a\n");
  merger.left(1, at(1));
  EXPECT_EQ(reported, (Reported{"0 stdout a\n"}));
}

TEST_F(OutputMergerTest, ValuesKeepTheirPlaceBetweenOutput) {
  merger.expect({0, 1});
  for (int rank : {0, 1}) {
    out(rank, "a\n");
    value(rank, 7);
    value(rank, rank);
    out(rank, "b\n");
  }
  merger.flush();
  EXPECT_EQ(reported, (Reported{"0-1 stdout a\n", "0-1 value 7", "0 value 0", "1 value 1", "0-1 stdout b\n"}));
}

TEST_F(OutputMergerTest, TheFirstValuesOfAllRanksComeBeforeTheSecond) {
  merger.expect({0, 1});
  for (const int rank : {0, 1})
    for (const int number : {rank, rank + 10, 7}) value(rank, number);
  out(1, "only here\n");
  value(1, 5);
  merger.flush();
  EXPECT_EQ(reported, (Reported{"0 value 0", "1 value 1", "0 value 10", "1 value 11", "0-1 value 7",
                                "1 stdout only here\n", "1 value 5"}));
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 0, 1, 1, 2, 3}));
  merger.expect({0, 1});  // the next piece of code: rank 1 has shown more so far
  for (const int rank : {0, 1}) value(rank, rank);
  merger.flush();
  EXPECT_EQ(numbers[6], 4);
  EXPECT_EQ(numbers[7], 4);
}

TEST_F(OutputMergerTest, ALateRanksValuesHaveTheNumbersOfTheOthers) {
  merger.expect({0, 1});
  for (const int number : {0, 10}) value(0, number, 0);
  merger.due(at(200));
  for (const int number : {1, 11}) value(1, number, 300);
  EXPECT_EQ(reported, (Reported{"0 value 0", "0 value 10", "1 value 1", "1 value 11"}));
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 1, 0, 1}));
}

TEST_F(OutputMergerTest, ALabelIsPartOfAValue) {
  merger.expect({0, 1});
  value(0, 3, 0, false, "a");
  value(1, 3, 0, false, "b");
  for (const int rank : {0, 1}) value(rank, "x\ny", 0, false, "lines");
  for (const int rank : {0, 1}) value(rank, rank + 1, 0, true, "loss");
  merger.flush();
  EXPECT_EQ(reported, (Reported{"0 value a: 3", "1 value b: 3", "0-1 value lines:\nx\ny",
                                "0-1 value loss: 1 to 2 (spread 1, mean 1.5, lowest rank 0, highest rank 1)"}));
}

TEST_F(OutputMergerTest, AMarkComesAfterTheOutputBeforeIt) {
  merger.expect({0, 1});
  out(0, "a\n");
  merger.mark(0, 1, "m", at(0));
  out(0, "b\n");
  EXPECT_TRUE(reported.empty());
  out(1, "a\n");
  EXPECT_EQ(reported, (Reported{"0-1 stdout a\n"}));
  merger.mark(1, 1, "m", at(10));
  out(1, "b\n");
  EXPECT_EQ(reported, (Reported{"0-1 stdout a\n", "0-1 mark m", "0-1 stdout b\n"}));
}

TEST_F(OutputMergerTest, RanksWithoutAMarkStayInStep) {
  merger.expect({0, 1});
  merger.mark(0, 1, "m", at(0));
  out(0, "b\n", 10);
  out(1, "b\n", 20);
  merger.due(at(200));
  merger.due(at(210));
  EXPECT_EQ(reported, (Reported{"0 mark m", "0-1 stdout b\n"}));
}

TEST_F(OutputMergerTest, NumbersOfTheRanksAreOneRangeWhereThatIsAskedFor) {
  merger.expect({0, 1, 2});
  value(0, 1.25, 0, true);
  value(1, 1.5, 0, true);
  EXPECT_TRUE(reported.empty());
  value(2, 1, 0, true);
  EXPECT_EQ(reported, (Reported{"0-2 value 1 to 1.5 (spread 0.5, mean 1.25, lowest rank 2, highest rank 1)"}));
  for (const int rank : {0, 1, 2}) value(rank, 7, 10, true);
  EXPECT_EQ(reported.back(), "0-2 value 7");
  for (const int rank : {0, 1, 2}) value(rank, rank == 1 ? nlohmann::json("nan") : nlohmann::json(3 + rank), 20, true);
  merger.flush();
  EXPECT_EQ(reported[2], "0,2 value 3 to 5 (spread 2, mean 4, lowest rank 0, highest rank 2)");
  EXPECT_EQ(reported[3], "1 value nan") << "what is no number is in no range";
}

TEST_F(OutputMergerTest, StreamsAreNotMixed) {
  merger.expect({0, 1});
  merger.output(0, 1, Stream::standard_output, "x\n", at(0));
  merger.output(1, 1, Stream::standard_error, "x\n", at(0));
  merger.flush();
  EXPECT_EQ(reported, (Reported{"0 stdout x\n", "1 stderr x\n"}));
}

TEST_F(OutputMergerTest, TextWithoutANewlineIsFoldedWhenItsTimeIsOver) {
  merger.expect({0, 1});
  out(0, "50%", 0);
  out(1, "50%", 10);
  merger.due(at(210));
  EXPECT_EQ(reported, (Reported{"0-1 stdout 50%"}));
}

TEST_F(OutputMergerTest, CharactersAreNotCutInTwo) {
  merger.expect({0, 1});
  out(0, "\xc3", 0);
  merger.due(at(200));
  EXPECT_TRUE(reported.empty());
  out(0, "\xa9\n", 210);
  merger.due(at(500));
  EXPECT_EQ(reported, (Reported{"0 stdout \xc3\xa9\n"}));
}

TEST_F(OutputMergerTest, LongDifferencesDoNotWait) {
  merger.expect({0, 1});
  out(0, std::string(OutputMerger::kLongDifference, 'a') + "a\n");
  EXPECT_TRUE(reported.empty());
  out(1, "b\n");
  EXPECT_FALSE(reported.empty());
}

TEST_F(OutputMergerTest, Rule5NoByteIsLostOrMisplaced) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    bytes.clear();
    consumed.clear();
    merger.expect({0, 1, 2});
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
        merger.left(it->first, at(ms));
        left.erase(it);
      }
      ms += static_cast<int>(random() % 100);
      if (const auto deadline = merger.deadline(); deadline && *deadline <= at(ms)) merger.due(at(ms));
    }
    merger.flush();
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
  const auto events = merge_errors(1, {{0, cause}, {1, consequence}, {2, consequence}});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].ranks, (RankSet{1, 2}));
  EXPECT_EQ(events[1].ranks, RankSet{0});
  EXPECT_EQ(events[1].where, "cell 1, line 2");
}

}  // namespace
}  // namespace lockstep::shell
