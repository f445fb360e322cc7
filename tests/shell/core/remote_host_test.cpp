// What a session or a job makes of a relay's messages. The test is the relay.
#include "shell/jobs/remote_host.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <chrono>

#include "protocol/version.h"
#include "shell/jobs/remote_ranks.h"

namespace lockstep::shell {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Clock = std::chrono::steady_clock;

class Relay {
 public:
  Relay() {
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    here_ = Descriptor(sockets[0]);
    there = Descriptor(sockets[1]);
    send(kRelayGreeting);
    say(RelayHello{
        .version = kVersion, .protocol = kProtocolVersion, .host = "node2", .machine = "another", .hub = ""});
    say(Pong{});
  }
  void say(const FromRelay& message) {
    send(protocol::wire_bytes({.header = protocol::encode_variant(message), .frames = {}}));
  }

  /// Returns the number of the ping that has come; 0 if none has.
  int64_t ping() {
    char bytes[4096];
    const ssize_t count = ::recv(here_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) asked_.append({bytes, static_cast<size_t>(count)});
    while (const auto message = asked_.next()) {
      const ToRelay asked = protocol::decode_variant<ToRelay>(message->header);
      if (const auto* ping = std::get_if<Ping>(&asked)) return ping->number;
    }
    return 0;
  }

  Descriptor there;  // for who speaks with it

 private:
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(here_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  Descriptor here_;
  protocol::MessageAssembler asked_;
};

class RemoteHostTest : public testing::Test {
 protected:
  RemoteHostTest() {
    EXPECT_TRUE(loop_.run_until([&] { return host_->state() == RemoteHost::State::heard; }, Clock::now() + 60s));
  }

  EventLoop loop_;
  Relay relay_;
  std::vector<int> seen_;
  std::vector<int64_t> ends_;  // when, by the clock here
  std::shared_ptr<RemoteHost> host_ = RemoteHost::start(
      loop_, "node2", std::move(relay_.there), "",
      {.seen = [this](const JobMember& rank) { seen_.push_back(rank.facts.rank); },
       .ended = [this](const JobMember&, const SeenEnd& end, auto&&) { ends_.push_back(end.seen_ns); },
       .changed = [](const RemoteHost&) {}});
};

TEST_F(RemoteHostTest, WhatCameWhileOthersWereWaitedForIsTaken) {
  const JobMember rank{.facts = {.rank = 2, .world_size = 4, .pid = 17}, .socket = ""};
  const int64_t number = host_->send({rank}, {{"request", "stacks"}}, 1s), logs = host_->ask_logs({2}, {});
  relay_.say(AskAnswer{.number = number, .answers = {{2, {.body = {{"at", 1}}, .error = ""}}}});
  relay_.say(Logs{.number = logs, .logs = {{2, "of rank 2"}}});
  EXPECT_EQ(host_->receive(number, Clock::now() - 1s).at(2).error, "");
  EXPECT_EQ(host_->take_logs(logs, Clock::now() - 1s).at(2), "of rank 2");
}

TEST_F(RemoteHostTest, ARankThatIsMissingFromAnAnswerHasEnded) {
  const JobMember rank{.facts = {.rank = 2, .world_size = 4, .pid = 17}, .socket = ""};
  const int64_t number = host_->send({rank}, {{"request", "stacks"}}, 1s);
  relay_.say(AskAnswer{.number = number, .answers = {}});
  EXPECT_EQ(host_->receive(number, Clock::now() + 60s).at(2).error, "its host node2: it has ended");
}

TEST_F(RemoteHostTest, LogsThatComeTooLateAreDropped) {
  const int64_t number = host_->ask_logs({2}, {});
  EXPECT_THAT(host_->take_logs(number, Clock::now() - 1s), IsEmpty());
  relay_.say(Logs{.number = number, .logs = {{2, "late"}}});
  relay_.say(Logs{.number = 1000, .logs = {{2, "never asked for"}}});
  EXPECT_THAT(host_->take_logs(number, Clock::now() - 1s), IsEmpty());
  EXPECT_THAT(host_->take_logs(host_->ask_logs({2}, {}), Clock::now() - 1s), IsEmpty());
  EXPECT_THAT(host_->take_logs(1000, Clock::now() - 1s), IsEmpty());
}

TEST_F(RemoteHostTest, NumbersThatNoRankHasAreLeftOut) {
  for (const int rank : {-1, 4, 1})
    relay_.say(RankSeen{.facts = {.rank = rank, .world_size = 4, .pid = 17 + rank}, .socket = ""});
  relay_.say(RankSeen{.facts = {.rank = 3, .world_size = 1 << 30, .pid = 30}, .socket = ""});
  relay_.say(RankSeen{.facts = {.rank = 3, .world_size = 4, .pid = 20}, .socket = ""});
  EXPECT_TRUE(loop_.run_until([&] { return seen_.size() == 2; }, Clock::now() + 60s));
  EXPECT_THAT(seen_, ElementsAre(1, 3));
}

TEST_F(RemoteHostTest, ClocksAreMeasuredAgainByFastAnswers) {
  // Answers a ping, with a clock that is ahead. Returns how long after the ping the answer had been read.
  const auto answer = [&](std::chrono::hours ahead, std::chrono::milliseconds after) {
    int64_t number = 0;
    EXPECT_TRUE(loop_.run_until([&] { return (number = relay_.ping()) != 0; }, Clock::now() + 60s));
    const auto begin = Clock::now();
    loop_.run_until([] { return false; }, begin + after);
    relay_.say(Pong{.number = number,
                    .time_ns = realtime_ns() + std::chrono::nanoseconds(ahead).count(),
                    .monotonic_ns = std::chrono::nanoseconds(Clock::now().time_since_epoch() + ahead).count()});
    // What follows has been read, and so has the answer.
    relay_.say(RankSeen{.facts = {.rank = 3, .world_size = 4, .pid = number}, .socket = ""});
    const int64_t seen_ns = realtime_ns() + std::chrono::nanoseconds(ahead).count();
    relay_.say(RankGone{.end = {.pid = number, .seen_ns = seen_ns}, .evidence = {}, .unread = {}});
    const size_t before = ends_.size();
    EXPECT_TRUE(loop_.run_until([&] { return ends_.size() > before; }, Clock::now() + 60s));
    return Clock::now() - begin;
  };
  const auto hours = [](int64_t ns) { return std::chrono::round<std::chrono::hours>(std::chrono::nanoseconds(ns)); };
  const auto end = [&] { return hours(ends_.back() - realtime_ns()); };
  while (answer(1h, 1000ms) > 1900ms) {
  }  // the next ping has come before
  EXPECT_EQ(hours(host_->clock_ahead_ns()), 1h);
  EXPECT_EQ(end(), 0h);
  while (answer(2h, 0ms) > 500ms) {
  }  // the clock there has been set meanwhile
  EXPECT_EQ(hours(host_->clock_ahead_ns()), 2h);
  EXPECT_EQ(end(), 0h);
  answer(3h, 1000ms);  // half of that time may be the way here
  EXPECT_EQ(hours(host_->clock_ahead_ns()), 2h);
  EXPECT_EQ(end(), 1h);
}

TEST_F(RemoteHostTest, TextThatEndsWithinACharacterIsSent) {
  const JobMember rank{.facts = {.rank = 2, .world_size = 4, .pid = 17}, .socket = "/nowhere", .is_alive = true};
  JobMember elsewhere = rank;
  elsewhere.facts.rank = 3;
  elsewhere.proxy = host_;
  relay_.say(RankSeen{.facts = elsewhere.facts, .socket = ""});
  const auto answers = ask_ranks({rank, elsewhere}, {{"request", "mismatch"}, {"message", "train\xc3"}}, 0ms);
  EXPECT_THAT(answers.at(2).error, HasSubstr("can't be reached"));
  EXPECT_THAT(answers.at(3).error, HasSubstr("no answer in time"));
}

TEST(DamagedMessageTest, TheHostIsLost) {
  EventLoop loop;
  Relay relay;
  const auto host = RemoteHost::start(loop, "node2", std::move(relay.there), "",
                                      {.changed = [](const RemoteHost&) {},
                                       .session =
                                           [](FromRelay&& message, auto&&) {
                                             if (std::holds_alternative<CallsMade>(message))
                                               throw ChannelError("a message with calls is too short");
                                           }});
  relay.say(CallsMade{});
  EXPECT_TRUE(loop.run_until([&] { return host->state() == RemoteHost::State::lost; }, Clock::now() + 60s));
  EXPECT_EQ(host->absence(), "a message with calls is too short");
}

TEST(SilenceTest, TimeInWhichNobodyHasLookedIsNoSilence) {
  const Clock::time_point start{};
  Silence silence(start, 2s);
  for (int second = 1; second <= 10; ++second) silence.look(start + std::chrono::seconds(second));
  EXPECT_EQ(silence.length(), 10s);
  silence.end();
  EXPECT_EQ(silence.length(), 0s);
  silence.look(start + 85s);  // this process was stopped
  EXPECT_EQ(silence.length(), 2s);
  silence.look(start + 86s);
  EXPECT_EQ(silence.length(), 3s);
}

TEST(RemoteRanksTest, AWarningBeforeRanksAreStartedComesWithThem) {
  EventLoop loop;
  Relay relay;
  relay.say(RelayWarning{"node2: /run has 0 bytes left"});
  RemoteRanks ranks(loop, "node2", std::move(relay.there), "", 0, 1, nullptr);
  EXPECT_TRUE(loop.run_until([&] { return ranks.machine().state() == RemoteHost::State::heard; }, Clock::now() + 60s));
  std::vector<std::string> warnings;
  ranks.start({}, {.started = [](auto&&...) {},
                   .failed = [](auto&&...) {},
                   .ended = [](auto&&...) {},
                   .store_ended = [](auto&&...) {},
                   .warning = [&](const std::string& text) { warnings.push_back(text); },
                   .left = [](auto&&...) {}});
  EXPECT_TRUE(loop.run_until([&] { return !warnings.empty(); }, Clock::now() + 60s));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("0 bytes left")));
}

}  // namespace
}  // namespace lockstep::shell
