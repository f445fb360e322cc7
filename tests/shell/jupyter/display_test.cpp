#include "shell/jupyter/display.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "shell/jupyter/displayed_data.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class DisplayTest : public testing::Test {
 protected:
  void SetUp() override { display_.set_ranks(RankSet{0, 1}); }

  std::vector<std::string> types() const {
    std::vector<std::string> result;
    for (const auto& [type, content] : published_) result.push_back(type);
    return result;
  }
  /// Serves the loop until a message has come that was not there.
  void wait_for_next() {
    const size_t count = published_.size();
    loop_.run_until([&] { return published_.size() > count; });
  }
  static OutputEvent output(const RankSet& ranks, const std::string& bytes, Stream stream = Stream::standard_output) {
    return {.cell = 1, .ranks = ranks, .stream = stream, .bytes = bytes};
  }

  EventLoop loop_;
  std::vector<std::pair<std::string, json>> published_;
  Display display_{loop_,
                   [this](std::string_view type, json content) { published_.emplace_back(type, std::move(content)); }};
};

TEST_F(DisplayTest, TheFirstLinesGoOutAtOnceAndThoseAfterThemTogether) {
  display_.begin({});
  display_.take(output({0, 1}, "one\n"));
  ASSERT_EQ(published_.size(), 1u);
  EXPECT_EQ(published_[0].second, (json{{"name", "stdout"}, {"text", "0-1 │ one\n"}}));
  display_.take(output({0}, "two\n"));
  display_.take(output({1}, "three\n"));
  EXPECT_EQ(published_.size(), 1u);
  (void)display_.end();
  ASSERT_EQ(published_.size(), 2u);
  EXPECT_EQ(published_[1].second["text"], "0   │ two\n1   │ three\n");
}

TEST_F(DisplayTest, StreamsKeepTheirOrder) {
  display_.begin({});
  display_.take(output({0, 1}, "first\n"));
  display_.take(output({0, 1}, "error\n", Stream::standard_error));
  display_.take(output({0, 1}, "last\n"));
  (void)display_.end();
  ASSERT_EQ(published_.size(), 3u);
  EXPECT_EQ(published_[1].second["name"], "stderr");
  EXPECT_EQ(published_[2].second["text"], "0-1 │ last\n");
}

TEST_F(DisplayTest, AnUnfinishedLineIsADisplayThatBecomesItsEnd) {
  display_.begin({});
  display_.take(output({0, 1}, "\r10%"));
  wait_for_next();
  display_.take(output({0, 1}, "\r50%"));
  wait_for_next();
  display_.take(output({0, 1}, "\r99%\n"));
  (void)display_.end();
  EXPECT_THAT(types(), ElementsAre("display_data", "update_display_data", "update_display_data"));
  EXPECT_EQ(published_[0].second["data"]["text/plain"], "0-1 │ 10%");
  EXPECT_EQ(published_[2].second["data"]["text/plain"], "0-1 │ 99%");
  EXPECT_EQ(published_[0].second["transient"], published_[2].second["transient"]);
}

TEST_F(DisplayTest, TheDisplayOfACellThatHasShownEnoughIsNotThatOfTheNextCell) {
  display_.begin({});
  display_.take(output({0, 1}, "\r10%"));
  wait_for_next();
  for (int i = 0; i < 20000; ++i) display_.take(output({0, 1}, std::string(100, 'x') + "\n"));
  display_.take(output({0, 1}, "\r20%"));
  loop_.run_until([&] { return types().back() == "display_data"; });
  display_.take(output({0, 1}, "\n"));
  (void)display_.end();
  published_.clear();
  display_.begin({});
  display_.take(output({0, 1}, "next\n"));
  (void)display_.end();
  EXPECT_THAT(types(), ElementsAre("stream"));
}

TEST_F(DisplayTest, OutputThatIsHeldForMergingIsShownUntilItIsMerged) {
  display_.begin({});
  display_.take_early(0, Stream::standard_output, "same\n");
  wait_for_next();
  ASSERT_THAT(types(), ElementsAre("display_data"));
  EXPECT_EQ(published_[0].second["data"]["text/plain"], "0   │ same");
  display_.take_early(1, Stream::standard_output, "same\n");
  display_.take(output({0, 1}, "same\n"));
  (void)display_.end();
  ASSERT_THAT(types(), ElementsAre("display_data", "update_display_data"));
  EXPECT_EQ(published_[1].second["data"]["text/plain"], "0-1 │ same");
  EXPECT_EQ(published_[0].second["transient"], published_[1].second["transient"]);
}

TEST_F(DisplayTest, OutputThatIsMergedAtOnceIsTextAndNoDisplay) {
  display_.begin({});
  for (int i = 0; i < 3; ++i) {
    for (const int rank : {0, 1}) display_.take_early(rank, Stream::standard_output, "same\n");
    display_.take(output({0, 1}, "same\n"));
  }
  (void)display_.end();
  EXPECT_THAT(types(), ElementsAre("stream", "stream"));
}

TEST_F(DisplayTest, HeldOutputOfRanksThatDifferIsShownByRankOnItsLastLines) {
  display_.begin({});
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "line " + std::to_string(i) + "\n";
  display_.take_early(0, Stream::standard_output, many);
  display_.take_early(1, Stream::standard_output, "other\n");
  wait_for_next();
  const std::string text = published_[0].second["data"]["text/plain"];
  EXPECT_THAT(text, HasSubstr("0   │ line 999\n1   │ other"));
  EXPECT_LT(text.size(), 2000u);
  display_.take(output({0}, many));
  display_.take(output({1}, "other\n"));
  (void)display_.end();
  std::string shown;
  for (const auto& [type, content] : published_) {
    if (type == "stream") shown += content["text"].get<std::string>();
    if (type == "update_display_data") shown += content["data"]["text/plain"].get<std::string>();
  }
  EXPECT_THAT(shown, HasSubstr("0   │ line 0\n"));
  EXPECT_THAT(shown, HasSubstr("1   │ other"));
}

TEST_F(DisplayTest, ALineWithoutEndIsOutputOfACellThatIsOver) {
  display_.begin({});
  display_.take(output({0}, "no end"));
  (void)display_.end();
  EXPECT_THAT(types(), ElementsAre("stream"));
  EXPECT_EQ(published_[0].second["text"], "0   │ no end\n");
}

TEST_F(DisplayTest, ValuesOfRanksAreOneResultAndTheNextIsAnother) {
  display_.begin({.silent = false, .paged = false, .execution_count = 4});
  display_.take(ValueEvent{1, {0}, "a", 1});
  EXPECT_TRUE(published_.empty());
  display_.take(ValueEvent{1, {1}, "b", 2});
  EXPECT_EQ(published_.size(), 1u);
  for (const int rank : {0, 1})  // came too late to be merged
    display_.take(ValueEvent{.cell = 1, .ranks = {rank}, .text = "c", .data = 3, .label = {}, .number = 1});
  const Display::Report report = display_.end();
  ASSERT_THAT(types(), ElementsAre("execute_result", "execute_result"));
  EXPECT_EQ(published_[0].second["data"]["text/plain"], "0   = a\n1   = b");
  EXPECT_EQ(published_[0].second["execution_count"], 4);
  EXPECT_EQ(published_[1].second["data"]["text/plain"], "c");
  EXPECT_EQ(report.result["text/plain"], "c");
}

TEST_F(DisplayTest, TheFirstValuesOfRanksAreOneResultAndTheSecondAnother) {
  display_.begin({});
  for (const int rank : {1, 0})  // they stand in the order of ranks all the same
    for (const int number : {0, 1, 2}) {
      const int value = rank + 10 * number;
      display_.take(ValueEvent{
          .cell = 1, .ranks = {rank}, .text = std::to_string(value), .data = value, .label = {}, .number = number});
    }
  (void)display_.end();
  ASSERT_THAT(types(), ElementsAre("execute_result", "execute_result", "execute_result"));
  EXPECT_EQ(published_[0].second["data"]["text/plain"], "0   = 0\n1   = 1");
  EXPECT_EQ(published_[1].second["data"]["text/plain"], "0   = 10\n1   = 11");
  EXPECT_EQ(published_[2].second["data"]["text/plain"], "0   = 20\n1   = 21");
}

TEST_F(DisplayTest, ErrorsHaveNoColoursAndSentencesAreBrokenBetweenWords) {
  display_.begin({});
  std::string sentence;
  while (sentence.size() < 200) sentence += "unmistakable ";
  display_.take(ErrorEvent{.cell = 1, .ranks = {1}, .type = "std::logic_error", .message = sentence});
  display_.take(CellEvent{.cell = 1, .status = CellStatus::error, .rank_status = {{0, CellStatus::interrupted}}});
  const Display::Report report = display_.end();
  EXPECT_THAT(report.traceback.front(), HasSubstr("\033[1m✗ rank 1: std::logic_error\033[0m"));
  for (const std::string& line : report.traceback) {
    EXPECT_EQ(line.find("\033[3"), std::string::npos) << line;
    EXPECT_EQ(line.find("\033[1;3"), std::string::npos) << line;
    EXPECT_LE(line.size(), size_t{kPageColumns} + 20) << line;
  }
}

TEST_F(DisplayTest, AValueOfSomeRanksDoesNotWaitForTheEndOfItsCell) {
  display_.begin({});
  display_.take(ValueEvent{1, {0}, "42", 42});
  wait_for_next();
  EXPECT_THAT(types(), ElementsAre("execute_result"));
}

TEST_F(DisplayTest, ErrorsAreForTheReply) {
  display_.begin({});
  display_.take(ErrorEvent{.cell = 1, .ranks = {0}, .type = "Aborted", .message = "freed", .root_cause = false});
  display_.take(ErrorEvent{.cell = 1, .ranks = {1}, .type = "std::logic_error", .message = "wrong\nsecond line"});
  const Display::Report report = display_.end();
  EXPECT_TRUE(published_.empty());
  EXPECT_EQ(report.error_name, "std::logic_error");
  EXPECT_EQ(report.error_value, "rank 1: wrong");
  EXPECT_THAT(report.traceback.front(), HasSubstr("rank 0: Aborted"));
  EXPECT_THAT(report.traceback.back(), HasSubstr("second line"));
}

TEST_F(DisplayTest, ControlCharactersOfAnErrorDoNotReachAConsole) {
  display_.begin({});
  display_.take(ErrorEvent{.cell = 1, .ranks = {0}, .type = "E\033]0;t\a", .message = "\033]52;c;QQ==\a"});
  const Display::Report report = display_.end();
  EXPECT_EQ(report.error_name, "E^[]0;t^G");
  EXPECT_EQ(report.error_value, "rank 0: ^[]52;c;QQ==^G");
  for (const std::string& line : report.traceback) EXPECT_EQ(line.find("\033]"), std::string::npos) << line;
}

TEST_F(DisplayTest, WhatHappensBetweenCellsIsShownAtOnce) {
  display_.take(ErrorEvent{.cell = 1, .ranks = {1}, .type = "SIGKILL", .message = "killed"});
  ASSERT_THAT(types(), ElementsAre("stream"));
  EXPECT_EQ(published_[0].second["name"], "stderr");
  EXPECT_THAT(published_[0].second["text"].get<std::string>(), HasSubstr("rank 1: SIGKILL"));
}

TEST_F(DisplayTest, HelpIsForThePager) {
  display_.begin({.silent = false, .paged = true, .execution_count = 1});
  display_.take(MessageEvent{0, "%rank SPEC", nullptr});
  EXPECT_EQ(display_.end().page, "%rank SPEC\n");
  EXPECT_TRUE(published_.empty());
}

TEST_F(DisplayTest, AValueInFullIsForThePager) {
  display_.begin({});
  display_.take(PageEvent{1, "tensor(…)\n"});
  EXPECT_EQ(display_.end().page, "tensor(…)\n");
  EXPECT_TRUE(published_.empty());
}

TEST_F(DisplayTest, ALoopIsOneDisplayThatBecomesItsLastLine) {
  display_.begin({});
  ProgressEvent loop{.cell = 1,
                     .loop = 1,
                     .label = "epoch",
                     .ranks = {0, 1},
                     .done = {{0, 1}, {1, 1}},
                     .total = {{0, 4}, {1, 4}},
                     .elapsed_s = {{0, 2}, {1, 2}}};
  display_.take(loop);
  wait_for_next();
  loop.done = {{0, 2}, {1, 2}};
  display_.take(loop);
  wait_for_next();
  loop.done = {{0, 4}, {1, 4}};
  loop.state = LoopState::completed;
  display_.take(loop);
  (void)display_.end();
  ASSERT_THAT(types(), ElementsAre("display_data", "update_display_data", "update_display_data"));
  EXPECT_EQ(published_[0].second["data"]["text/plain"], "0-1 │ epoch  25% 1/4 [0:02<0:06, 2 s/it]");
  EXPECT_EQ(published_[2].second["data"]["text/plain"], "0-1 │ epoch  100% 4/4 [0:02, 2 it/s]");
  EXPECT_EQ(published_[0].second["transient"], published_[2].second["transient"]);
}

TEST_F(DisplayTest, ASilentRequestPublishesNothing) {
  display_.begin({.silent = true, .paged = false, .execution_count = 1});
  display_.take(output({0, 1}, "unseen\n"));
  display_.take(ValueEvent{1, {0, 1}, "1", 1});
  EXPECT_EQ(display_.end().result["text/plain"], "1");
  EXPECT_TRUE(published_.empty());
}

/// The contrast of two colours as WCAG defines it, from 1 to 21.
double contrast(const std::string& one, const std::string& other) {
  const auto luminance = [](const std::string& colour) {
    double sum = 0;
    for (const auto& [at, weight] : {std::pair(1, 0.2126), std::pair(3, 0.7152), std::pair(5, 0.0722)}) {
      const double part = std::stoi(colour.substr(static_cast<size_t>(at), 2), nullptr, 16) / 255.0;
      sum += weight * (part <= 0.03928 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
    }
    return sum + 0.05;
  };
  const double a = luminance(one), b = luminance(other);
  return std::max(a, b) / std::min(a, b);
}

TEST_F(DisplayTest, ColoursOfFindingsCanBeReadOnLightAndDarkPages) {
  display_.begin({});
  for (const auto& [severity, verdict] :
       {std::pair(Severity::fault, Verdict::mismatch), std::pair(Severity::note, Verdict::ok),
        std::pair(Severity::note, Verdict::straggler)}) {
    Finding finding;
    finding.severity = severity;
    finding.verdict = verdict;
    display_.take(FindingEvent{finding});
    const std::string html = published_.back().second["data"]["text/html"];
    const std::string colour = html.substr(html.find("color:#") + 6, 7);
    for (const char* page : {"#ffffff", "#111111"}) EXPECT_GT(contrast(colour, page), 4.1) << colour << page;
  }
  (void)display_.end();
}

TEST_F(DisplayTest, TextOfFindingsIsNoHtml) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "verify";
  finding.verdict = Verdict::mismatch;
  finding.object = "net<b>";
  finding.message = "a & b differ";
  finding.tensors = {{.name = "<script>", .dtype = "float32", .shape = {2}, .count = 1}};
  display_.begin({});
  display_.take(FindingEvent{finding});
  (void)display_.end();
  ASSERT_THAT(types(), ElementsAre("display_data"));
  const std::string html = published_[0].second["data"]["text/html"];
  EXPECT_THAT(html, HasSubstr("net&lt;b&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
  EXPECT_EQ(html.find("<script>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::shell::jupyter
