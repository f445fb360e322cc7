// Messages of ranks that go by way of a relay: what its hub puts together, and what the session's makes of it.
#include "shell/relay/rank_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "protocol/worker_messages.h"
#include "shell/processes/hub.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string text_of(const protocol::WorkerMessage& message) { return encode(message).dump(); }

protocol::Done done_in(double run_ms, int64_t cell = 7) {
  protocol::Done done;
  done.cell = cell;
  done.run_ms = run_ms;
  return done;
}

class RankHubTest : public testing::Test {
 protected:
  RankHubTest() {
    for (int rank = 4; rank < 8; ++rank) connect(rank);
  }
  ~RankHubTest() override {
    hub_.reset();
    fs::remove_all(folder_);
  }

  void connect(int rank) {
    const std::string identity = "rank-" + std::to_string(++identities_);
    hub_->expect(rank, identity);
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, identity);
    socket.connect(endpoint_);
    ranks_[rank] = std::move(socket);
  }
  void say(int rank, const std::vector<std::string>& frames) {
    for (const auto& frame : frames)
      ranks_.at(rank).send(zmq::buffer(frame),
                           &frame == &frames.back() ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
  /// All have connected, and an answer of each is asked for.
  void ask_all() {
    for (auto& [rank, socket] : ranks_) say(rank, {text_of(protocol::Ready{})});
    serve_until_from(ranks_.size());
    sent_.clear();
    frames_.clear();
    hub_->send(RankSet{4, 5, 6, 7}, {"question", "frame"});
  }
  /// Serves until so many messages of ranks have come, counted by rank.
  void serve_until_from(size_t count) {
    loop_.run_until([&] {
      size_t found = 0;
      for (const FromRanks& each : sent_)
        for (const RankSet& from : each.from) found += from.size();
      return found >= count;
    });
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("rank-hub-" + std::to_string(::getpid()));
  std::string endpoint_ = "ipc://" + (fs::create_directories(folder_), folder_ / "hub").string();
  EventLoop loop_;
  std::vector<FromRanks> sent_;
  std::vector<std::string> frames_, warnings_;
  std::vector<RanksLeft> left_;
  std::optional<RankHub> hub_{std::in_place, loop_, endpoint_,
                              [this](const FromRelay& message, std::vector<std::string> frames) {
                                if (const auto* from = std::get_if<FromRanks>(&message)) sent_.push_back(*from);
                                if (const auto* left = std::get_if<RanksLeft>(&message)) left_.push_back(*left);
                                if (const auto* warning = std::get_if<RelayWarning>(&message))
                                  warnings_.push_back(warning->text);
                                frames_.insert(frames_.end(), frames.begin(), frames.end());
                              }};
  zmq::context_t context_;
  std::map<int, zmq::socket_t> ranks_;
  int identities_ = 0;
};

TEST_F(RankHubTest, AnswersThatAreAlikeAreOneMessage) {
  ask_all();
  zmq::message_t part;
  ASSERT_TRUE(ranks_.at(6).recv(part));
  EXPECT_EQ(part.to_string(), "question");
  ASSERT_TRUE(ranks_.at(6).recv(part));
  EXPECT_EQ(part.to_string(), "frame");
  for (const int rank : {4, 5, 6, 7}) say(rank, {text_of(done_in(rank))});
  serve_until_from(4);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_THAT(sent_[0].from, ElementsAre(RankSet{4, 5, 6, 7}));
  EXPECT_THAT(sent_[0].frames, ElementsAre(1));
  EXPECT_EQ(sent_[0].run_ms, (std::map<int, double>{{4, 4}, {5, 5}, {6, 6}, {7, 7}}));
  EXPECT_THAT(frames_, ElementsAre(testing::Not(HasSubstr("run_ms"))));
}

TEST_F(RankHubTest, TheOrderOfARanksMessagesStays) {
  ask_all();
  const std::string a = text_of(protocol::Value{.cell = 7, .text = "a", .data = nullptr, .label = {}});
  const std::string b = text_of(protocol::Value{.cell = 7, .text = "b", .data = nullptr, .label = {}});
  const std::string output = text_of(protocol::Output{7, Stream::standard_output});
  say(4, {a});
  say(4, {output, "bytes"});
  for (const std::string* each : {&b, &a, &b}) say(5, {*each});
  say(5, {output, "bytes"});
  say(5, {output, "others"});
  for (const int rank : {4, 5, 6, 7}) say(rank, {text_of(done_in(1))});
  serve_until_from(11);
  std::map<int, std::vector<std::string>> seen;
  size_t at = 0;
  for (const FromRanks& each : sent_)
    for (size_t i = 0; i < each.from.size(); ++i) {
      std::string whole;
      for (int k = 0; k < each.frames[i]; ++k) whole += frames_.at(at++);
      for (const int rank : each.from[i]) seen[rank].push_back(whole);
    }
  EXPECT_EQ(at, frames_.size());
  ASSERT_EQ(seen[4].size(), 3u);
  EXPECT_EQ(seen[4][0], a);
  EXPECT_EQ(seen[4][1], output + "bytes");
  ASSERT_EQ(seen[5].size(), 6u);
  EXPECT_EQ(seen[5][0], b);
  EXPECT_EQ(seen[5][1], a);
  EXPECT_EQ(seen[5][2], b);
  EXPECT_EQ(seen[5][3], output + "bytes");
  EXPECT_EQ(seen[5][4], output + "others");
}

TEST_F(RankHubTest, EndsComeAfterWhatWasSentAndAreOfTheLifeThatEnded) {
  ask_all();
  say(5, {text_of(protocol::Dying{})});
  ranks_.at(5).set(zmq::sockopt::linger, -1);
  ranks_.at(5).close();
  loop_.run_until([&] { return !left_.empty(); });
  EXPECT_EQ(left_[0].ranks, RankSet{5});
  EXPECT_THAT(left_[0].lives, IsEmpty());
  EXPECT_THAT(frames_, ElementsAre(HasSubstr("dying")));
  connect(5);
  say(5, {text_of(protocol::Ready{})});
  serve_until_from(2);
  EXPECT_EQ(sent_.back().lives, (std::map<int, int>{{5, 1}}));
}

TEST_F(RankHubTest, WhatIsNoRankIsNotHeardAndSaidOnce) {
  ask_all();
  zmq::socket_t stranger(context_, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.set(zmq::sockopt::routing_id, "nobody");
  stranger.connect(endpoint_);
  for (int i = 0; i < 2; ++i) stranger.send(zmq::buffer(std::string("Done")), zmq::send_flags::none);
  loop_.run_until([&] { return !warnings_.empty(); });
  for (const int rank : {4, 5, 6, 7}) say(rank, {"what is no message"});  // which the session judges
  serve_until_from(4);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no rank of this session")));
  EXPECT_THAT(frames_, ElementsAre("what is no message"));
}

class CarriedTest : public testing::Test {
 protected:
  CarriedTest() {
    for (int rank = 0; rank < 3; ++rank) hub_.expect(rank);
    hub_.carry(RankSet{1, 2}, [this](const RankSet& ranks, const std::string& header, const auto& frames, bool) {
      carried_.push_back(ranks.str() + " " + nlohmann::json::parse(header).at("kind").get<std::string>() + " " +
                         std::to_string(frames.size()));
    });
  }
  ~CarriedTest() override { fs::remove_all(folder_); }

  fs::path folder_ = fs::path(testing::TempDir()) / ("carried-" + std::to_string(::getpid()));
  Hub hub_{"ipc://" + (fs::create_directories(folder_), folder_ / "hub").string()};
  std::vector<std::string> carried_;
};

TEST_F(CarriedTest, AMessageToManyRanksGoesToTheirHostOnce) {
  hub_.send(RankSet{0, 1, 2}, protocol::Load{}, std::vector<zmq::message_t>(1));
  hub_.send(2, protocol::Shutdown{});
  EXPECT_THAT(carried_, ElementsAre("1-2 load 1", "2 shutdown 0"));
}

TEST_F(CarriedTest, AMessageOfManyRanksIsOneOfEach) {
  hub_.deliver({.ranks = {1, 2}, .run_ms = {{1, 10}, {2, 20}}, .header = text_of(done_in(0)), .frames = {"frame"}}, {});
  EXPECT_EQ(hub_.arrived(), 2u);
  for (const int rank : {1, 2}) {
    const auto from = hub_.receive();
    ASSERT_TRUE(from);
    EXPECT_EQ(from->rank, rank);
    EXPECT_EQ(std::get<protocol::Done>(from->message).run_ms, 10 * rank);
    ASSERT_EQ(from->frames.size(), 1u);
    EXPECT_EQ(from->frames[0].to_string(), "frame");
  }
  EXPECT_FALSE(hub_.receive());
  EXPECT_TRUE(hub_.was_connected(1));
  EXPECT_FALSE(hub_.connection_ended(1));
  hub_.deliver_ends(RankSet{1}, {});
  EXPECT_TRUE(hub_.connection_ended(1));
  EXPECT_FALSE(hub_.connection_ended(2));
}

TEST_F(CarriedTest, AHostSpeaksForItsRanksOnlyAndForTheirLife) {
  const std::string ready = text_of(protocol::Ready{});
  hub_.deliver({.ranks = {0, 1}, .run_ms = {}, .header = ready, .frames = {}}, {});
  EXPECT_EQ(hub_.receive()->rank, 1);
  EXPECT_FALSE(hub_.receive());
  hub_.expect(1);  // it is started again
  hub_.deliver({.ranks = {1}, .run_ms = {}, .header = ready, .frames = {}}, {});
  hub_.deliver_ends(RankSet{1}, {});
  EXPECT_FALSE(hub_.receive()) << "of the process before";
  EXPECT_FALSE(hub_.connection_ended(1));
  hub_.deliver({.ranks = {1}, .run_ms = {}, .header = ready, .frames = {}}, {{1, 1}});
  EXPECT_EQ(hub_.receive()->rank, 1);
}

TEST_F(CarriedTest, WhatCanNotBeReadIsSaidOfEachRank) {
  hub_.deliver({.ranks = {1, 2}, .run_ms = {}, .header = "no message", .frames = {}}, {});
  for (const int rank : {1, 2}) {
    try {
      hub_.receive();
      ADD_FAILURE() << "it was read";
    } catch (const BadMessage& bad) {
      EXPECT_EQ(bad.rank, rank);
    }
  }
  EXPECT_FALSE(hub_.receive());
}

}  // namespace
}  // namespace lockstep::shell
