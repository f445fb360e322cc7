// Calls of ranks of several machines: which ones a relay sends, and which ones differ.
#include "shell/jobs/call_watch.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "protocol/error.h"

namespace lockstep::dist {
static bool operator==(const NewCall& one, const NewCall& other) {
  return one.incarnation == other.incarnation && one.seq == other.seq && one.signature == other.signature;
}
}  // namespace lockstep::dist

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;
using dist::NewCall;
using testing::ElementsAre;
using testing::IsEmpty;
using Seen = CallTable::Seen;

TEST(CallTable, CallsOfTheSameNumberAndGroupAreCompared) {
  CallTable table;
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 1, .signature = 11}), Seen::first);
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 1, .signature = 11}), Seen::again);
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 1, .signature = 12}), Seen::differs);
  EXPECT_EQ(table.add({.incarnation = 8, .seq = 1, .signature = 12}), Seen::first)
      << "another group's numbers are its own";
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 2, .signature = 12}), Seen::first);
}

TEST(CallTable, WhatIsForgottenDoesNotDiffer) {
  CallTable table;
  for (int64_t seq = 1; seq <= 1025; ++seq) table.add({.incarnation = 7, .seq = seq, .signature = 11});
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 1, .signature = 12}), Seen::again) << "1025 has its place";
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 2, .signature = 12}), Seen::differs);
  for (uint64_t group = 100; group < 700; ++group) table.add({.incarnation = group, .seq = 1, .signature = 11});
  EXPECT_EQ(table.add({.incarnation = 7, .seq = 3, .signature = 12}), Seen::first) << "the group is forgotten";
}

TEST(CallMessages, CallsArriveAsTheyWereSent) {
  const std::vector<NewCall> calls = {{7, 1, 11}, {7, 2, ~uint64_t{0}}, {8, 1, 13}, {7, 3, 14}, {7, 5, 15}};
  const auto [message, signatures] = packed(calls);
  EXPECT_EQ(message.runs.size(), 4) << "calls that follow one another are one run";
  EXPECT_EQ(signatures.size(), 40);
  const auto sent = protocol::decode_variant<FromRelay>(protocol::encode_variant(FromRelay(message)));
  EXPECT_EQ(unpacked(std::get<CallsMade>(sent), signatures), calls);
  EXPECT_THROW(unpacked(message, signatures.substr(1)), ChannelError);
  EXPECT_THROW(unpacked(message, signatures + "1"), ChannelError);
}

TEST(CallMessages, NumbersThatNoCallHasAreRefused) {
  const auto take = [](int64_t first, int64_t count) {
    CallsMade message;
    message.runs.push_back({.incarnation = 7, .first = first, .count = count});
    return unpacked(message, std::string(8, 'a'));
  };
  EXPECT_EQ(take(1, 1).size(), 1);
  EXPECT_THROW(take(0, 1), ChannelError);
  EXPECT_THROW(take(1, -1), ChannelError);
  EXPECT_THROW(take(INT64_MAX, 1), ChannelError);
}

class CallWatchTest : public ::testing::Test {
 protected:
  ~CallWatchTest() override { ::unlink(path_.c_str()); }

  std::unique_ptr<dist::CollectiveLog> make_log() {
    auto log = std::make_unique<dist::CollectiveLog>(path_, 0, 2);
    log->mapping().header().compares = 1;
    log->add_group("0", {0, 1}, 0, 0);
    log->mapping().group(0).incarnation = 7;
    return log;
  }
  void serve_until(size_t count) {
    EXPECT_TRUE(loop_.run_until([&] { return found_.size() >= count; }, EventLoop::Clock::now() + 60s));
  }

  const std::string path_ = ::testing::TempDir() + "call_watch_" + std::to_string(::getpid());
  EventLoop loop_;
  std::vector<NewCall> found_;
  CallWatch watch_{loop_, [this](const auto& calls) { found_.insert(found_.end(), calls.begin(), calls.end()); }};
};

TEST_F(CallWatchTest, ALogThatComesLateAndIsReplacedIsRead) {
  watch_.add(::getpid(), path_);
  auto log = make_log();
  log->begin(0, 1, {.signature = 11});
  serve_until(1);
  log = make_log();
  log->mapping().group(0).incarnation = 8;
  log->begin(0, 1, {.signature = 12});
  serve_until(2);
  EXPECT_THAT(found_, ElementsAre(NewCall{7, 1, 11}, NewCall{8, 1, 12}));
  EXPECT_EQ(log->mapping().header().calls_are_read, 1) << "the rank knows that it would be told";
}

TEST_F(CallWatchTest, WhatSeveralRanksCallIsSentOnce) {
  auto log = make_log();
  watch_.add(::getpid(), path_);
  for (const uint64_t signature : {11, 11, 12}) log->begin(0, 1, {.signature = signature});
  serve_until(2);
  EXPECT_THAT(found_, ElementsAre(NewCall{7, 1, 11}, NewCall{7, 1, 12}));
}

TEST_F(CallWatchTest, TheLastCallsOfARankThatEndsAreRead) {
  auto log = make_log();
  watch_.add(::getpid(), path_);
  log->begin(0, 1, {.signature = 11});
  watch_.remove(::getpid());
  EXPECT_THAT(found_, ElementsAre(NewCall{7, 1, 11}));
  watch_.add(::getpid() + 1, path_);
  watch_.remove(::getpid() + 1);
  EXPECT_EQ(found_.size(), 1) << "the log is another process's";
}

TEST_F(CallWatchTest, ALogThatWasRefusedIsTriedAgain) {
  auto log = make_log();
  log->begin(0, 1, {.signature = 11});
  log->mapping().header().pid = ::getpid() + 1;
  watch_.add(::getpid(), path_);
  loop_.run_until([] { return false; }, EventLoop::Clock::now() + 4 * CallWatch::kEvery);
  EXPECT_THAT(found_, IsEmpty());
  log->mapping().header().pid = ::getpid();
  serve_until(1);
}

TEST_F(CallWatchTest, CallsOfAGroupThatIsAllHereAreNotSent) {
  auto log = make_log();
  log->add_group("1", {0}, 0, 0);
  log->mapping().group(1).incarnation = 6;
  log->begin(1, 1, {.signature = 11});
  log->begin(0, 1, {.signature = 11});
  watch_.add(::getpid(), path_);
  watch_.remove(::getpid());
  EXPECT_THAT(found_, ElementsAre(NewCall{7, 1, 11}));
}

TEST_F(CallWatchTest, CallsOfOneGroupFollowOneAnother) {
  auto log = make_log();
  log->add_group("1", {0, 1}, 0, 0);
  log->mapping().group(1).incarnation = 6;
  for (const int64_t seq : {1, 2})
    for (const uint32_t group : {0, 1}) log->begin(group, seq, {.signature = 11});
  watch_.add(::getpid(), path_);
  serve_until(4);
  EXPECT_THAT(found_, ElementsAre(NewCall{6, 1, 11}, NewCall{6, 2, 11}, NewCall{7, 1, 11}, NewCall{7, 2, 11}));
}

}  // namespace
}  // namespace lockstep::shell
