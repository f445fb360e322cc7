// Events as JSON lines: the contract of --json.
#include <gtest/gtest.h>

#include <cmath>

#include "shell/events/base64.h"
#include "shell/events/event.h"

namespace lockstep::shell {
namespace {

TEST(EventJson, CellsAreKeyedByRank) {
  const auto json = to_event_json(CellEvent{.cell = 7,
                                            .title = "t",
                                            .ranks = {0, 1},
                                            .status = CellStatus::error,
                                            .rank_status = {{0, CellStatus::ok}, {1, CellStatus::error}},
                                            .run_ms = {{0, 1.5}, {1, 2}},
                                            .compile_ms = 3});
  EXPECT_EQ(json.at("event"), "cell");
  EXPECT_EQ(json.at("rank_status").at("1"), "error");
  EXPECT_EQ(json.at("run_ms").at("0"), 1.5);
  EXPECT_EQ(json.at("ranks"), nlohmann::json({0, 1}));
}

TEST(EventJson, BytesThatAreNoTextAreBase64) {
  EXPECT_EQ(to_event_json(OutputEvent{1, {0}, Stream::standard_output, "grüße\n"}).at("text"), "grüße\n");
  const auto json = to_event_json(OutputEvent{1, {0}, Stream::standard_output, std::string("\xff\x00\x01", 3)});
  EXPECT_FALSE(json.contains("text"));
  EXPECT_EQ(json.at("base64"), "/wAB");
}

TEST(EventJson, ProgressIsKeyedByRank) {
  const auto json = to_event_json(ProgressEvent{.cell = 3,
                                                .loop = 2,
                                                .label = "epoch",
                                                .line = 4,
                                                .ranks = {0, 1},
                                                .done = {{0, 5}, {1, 7}},
                                                .total = {{1, 10}},
                                                .elapsed_s = {{0, 1.5}, {1, 2}},
                                                .state = LoopState::stopped});
  EXPECT_EQ(json.at("event"), "progress");
  EXPECT_TRUE(json.at("parent").is_null());
  EXPECT_EQ(json.at("done"), nlohmann::json({{"0", 5}, {"1", 7}}));
  EXPECT_EQ(json.at("total"), nlohmann::json({{"1", 10}}));
  EXPECT_EQ(json.at("state"), "stopped");
}

TEST(EventJson, ActivityHasThePartsOfTheRanks) {
  ActivityEvent event{.phase = ActivityEvent::Phase::running, .cell = 3, .elapsed_s = 12};
  event.parts.push_back({.ranks = {0, 2},
                         .state = "in_collective",
                         .collective = "all_reduce",
                         .group = "default",
                         .seq = 7,
                         .since_s = 1.5});
  event.parts.push_back({.ranks = {1}, .state = "running"});
  const auto json = to_event_json(event);
  EXPECT_EQ(json.at("phase"), "running");
  EXPECT_EQ(json.at("parts").at(0).at("seq"), 7);
  EXPECT_TRUE(json.at("parts").at(1).at("collective").is_null());
  EXPECT_TRUE(json.at("step").is_null());
}

TEST(EventJson, NumbersThatJsonLacksAreWords) {
  ValueEvent value{
      .cell = 1, .ranks = {0}, .text = "x", .data = {{"a", std::nan("")}, {"b", {INFINITY, -INFINITY, 1.0}}}};
  const auto data = to_event_json(value).at("data");
  EXPECT_EQ(data.at("a"), "nan");
  EXPECT_EQ(data.at("b"), nlohmann::json({"inf", "-inf", 1.0}));
}

TEST(EventJson, TextThatIsNotUtf8DoesNotThrow) {
  const auto json = to_event_json(ErrorEvent{.cell = 1, .ranks = {0}, .type = "E", .message = "bad \xff byte"});
  EXPECT_NO_THROW((void)json.dump());
  EXPECT_TRUE(json.at("where").is_null());
}

TEST(EventJson, FindingsCarryTheirSchema) {
  Finding finding;
  finding.inspector = "verify";
  finding.verdict = Verdict::ok;
  const auto json = to_event_json(FindingEvent{finding});
  EXPECT_EQ(json.at("event"), "finding");
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_TRUE(json.at("op").is_null());
}

TEST(Base64, KnownPairs) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  for (const char* bytes : {"", "f", "fo", "foo", "\xff\x01"}) EXPECT_EQ(from_base64(base64(bytes)), bytes);
  EXPECT_THROW(from_base64("Zg="), std::invalid_argument);
  EXPECT_THROW(from_base64("Zg-="), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::shell
