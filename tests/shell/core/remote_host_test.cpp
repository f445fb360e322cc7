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

  Descriptor there;  // for who speaks with it

 private:
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(here_.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  Descriptor here_;
};

class RemoteHostTest : public testing::Test {
 protected:
  RemoteHostTest() {
    EXPECT_TRUE(loop_.run_until([&] { return host_->state() == RemoteHost::State::heard; }, Clock::now() + 60s));
  }

  EventLoop loop_;
  Relay relay_;
  std::vector<int> seen_;
  std::shared_ptr<RemoteHost> host_ =
      RemoteHost::start(loop_, "node2", std::move(relay_.there), "",
                        {.seen = [this](const JobMember& rank) { seen_.push_back(rank.facts.rank); },
                         .ended = [](auto&&...) {},
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
