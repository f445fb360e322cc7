// What all groups of ranks share, with ranks of a kind of their own: a test connects them, and says when they end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <zmq.hpp>

#include "protocol/error.h"
#include "shell/processes/rank_group.h"

namespace lockstep::shell {
namespace {

using State = RankInfo::State;

/// Ranks whose processes another machine has: somebody reports their ends.
class TestGroup : public RankGroup {
 public:
  using RankGroup::let_go;
  TestGroup(EventLoop& loop, const std::string& endpoint, int world_size, Listener listener)
      : RankGroup(loop, endpoint, world_size, std::move(listener)) {}

  void wait_connected() override { wait_until_all(State::connected); }
  void make_ready(const std::string& prelude, const Versions&) override {
    hub_.send(RankSet::all(world_size()), protocol::Prelude{prelude});
    wait_until_all(State::ready);
    starting_ = false;
  }
  void kill(int) override {}
  bool owns_processes() const override { return false; }
  void read_logs(const std::vector<inspect::RankPicture*>&, const inspect::LogPart&) const override {}

  /// The identity of the next process of a rank.
  const std::string& begin(int rank) {
    at(rank).info = {};
    at(rank).end.reset();
    return hub_.expect(rank);
  }
  void end(int rank, const std::string& how) {
    how_ = how;
    process_ended(rank);
  }

 private:
  void wait_until_all(State wanted) {
    serve_start(
        [&] {
          for (int r = 0; r < world_size(); ++r)
            if (rank(r).state < wanted) return false;
          return true;
        },
        std::chrono::minutes(1), "no start: ");
  }
  std::optional<RankExit> take_end(int) override { return RankExit{how_}; }
  void buried(int rank, State before) override {
    protocol::CellError error;
    error.message = before == State::leaving ? "has left" : at(rank).end->words;
    listener_.died(rank, error);
  }
  void give_up(int rank, const std::string& why) override { start_error_ = std::to_string(rank) + " " + why; }
  void disconnected(int rank) override {
    if (this->rank(rank).state == State::leaving) bury(rank);
  }

  std::string how_;
};

/// The process of a rank, as the group sees it.
class Process {
 public:
  Process(const std::string& endpoint, const std::string& identity) : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::routing_id, identity);
    socket_.connect(endpoint);
  }
  void send(const protocol::WorkerMessage& message) { send(encode(message).dump()); }
  void send(const std::string& frame) { socket_.send(zmq::buffer(frame), zmq::send_flags::none); }

 private:
  zmq::context_t context_;  // when it is destroyed, all has been sent
  zmq::socket_t socket_;
};

class RankGroupTest : public testing::Test {
 protected:
  RankGroupTest() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    endpoint_ = "ipc://" + name + "/hub";
    group_ = std::make_unique<TestGroup>(
        loop_, endpoint_, 1,
        RankGroup::Listener{.message = [this](FromWorker&) { ++messages_; },
                            .last_output = nullptr,
                            .warning = [](const std::string& text) { ADD_FAILURE() << text; },
                            .died = [this](int, const protocol::CellError& error) { died_ = error.message; },
                            .store_ended = nullptr});
    process_ = std::make_unique<Process>(endpoint_, group_->begin(0));
  }
  ~RankGroupTest() override {
    process_.reset();
    group_.reset();
    std::filesystem::remove_all(folder_);
  }
  void start() {
    process_->send(protocol::Hello{});
    group_->wait_connected();
    process_->send(protocol::Ready{});
    group_->make_ready("", {});
    EXPECT_EQ(group_->live(), RankSet{0});
  }

  std::filesystem::path folder_;
  std::string endpoint_, died_;
  EventLoop loop_;
  std::unique_ptr<TestGroup> group_;
  std::unique_ptr<Process> process_;
  int messages_ = 0;
};

TEST_F(RankGroupTest, ARankIsDeadWhenAllThatItHadSentHasArrived) {
  start();
  for (int i = 0; i < 3; ++i) process_->send(protocol::Done{});
  process_.reset();
  group_->end(0, "was killed");
  EXPECT_TRUE(group_->live().empty());
  loop_.run_until([&] { return !died_.empty(); });
  EXPECT_EQ(messages_, 3);
  EXPECT_EQ(died_, "was killed");
  EXPECT_EQ(group_->rank(0).state, State::dead);
}

TEST_F(RankGroupTest, ARankMayStartAgainInItsPlace) {
  start();
  process_.reset();
  group_->end(0, "was killed");
  loop_.run_until([&] { return !died_.empty(); });
  process_ = std::make_unique<Process>(endpoint_, group_->begin(0));
  start();
}

TEST_F(RankGroupTest, ARankThatIsLetGoIsBackAtTheStart) {
  start();
  group_->let_go(RankSet{0});
  EXPECT_TRUE(group_->live().empty());
  process_.reset();
  loop_.run_until([&] { return !died_.empty(); });
  EXPECT_EQ(died_, "has left");
  EXPECT_EQ(group_->rank(0).state, State::starting);
}

TEST_F(RankGroupTest, MachinesMayHaveOneName) {
  TestGroup group(loop_, endpoint_ + "-of-two", 2, {});
  Process first(endpoint_ + "-of-two", group.begin(0)), second(endpoint_ + "-of-two", group.begin(1));
  first.send(protocol::Hello{.rank = 0, .host = "localhost", .machine = "one"});
  second.send(protocol::Hello{.rank = 1, .host = "localhost", .machine = "another"});
  group.wait_connected();
  EXPECT_FALSE(group.share_machine());
  EXPECT_TRUE(group_->share_machine());
}

TEST_F(RankGroupTest, AStartFailsWithARankThatIsNotReady) {
  process_->send(protocol::Hello{});
  process_->send(protocol::NotReady{.message = "no memory"});
  EXPECT_THAT([&] { group_->make_ready("", {}); }, testing::ThrowsMessage<StartError>("no start: rank 0: no memory"));
}

TEST_F(RankGroupTest, AStartFailsWithARankThatCannotBeRead) {
  process_->send("garbage");
  EXPECT_THAT([&] { group_->wait_connected(); },
              testing::ThrowsMessage<StartError>(testing::StartsWith("no start: 0 ")));
}

}  // namespace
}  // namespace lockstep::shell
