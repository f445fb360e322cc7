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
  finding.verdict = "ok";
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
}

TEST(Utf8, WellFormedOrNot) {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"})
    EXPECT_FALSE(is_utf8(bad));
  EXPECT_EQ(unfinished_utf8("a\xe2\x82"), 2u);
  EXPECT_EQ(unfinished_utf8("a\xe2\x82\xac"), 0u);
  EXPECT_EQ(unfinished_utf8("\xff"), 0u);
}

}  // namespace
}  // namespace lockstep::shell
