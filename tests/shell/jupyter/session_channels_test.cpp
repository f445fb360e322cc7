// The socket between a session and the process that has the kernel's sockets.
#include "shell/jupyter/session_channels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep::shell::jupyter {
namespace {

using testing::ElementsAre;
using testing::Pair;

class SessionChannelsTest : public testing::Test {
 protected:
  SessionChannelsTest() {
    auto [own, of_session] = make_socket_pair();
    session_ = std::make_unique<SessionChannels>(std::move(of_session), "key");
    session_->watch(loop_, [this](Channel channel, const std::vector<std::string>& frames) {
      taken_.emplace_back(channel, frames);
    });
    own_ = std::move(own);
  }

  EventLoop loop_;
  Descriptor own_;
  std::unique_ptr<SessionChannels> session_;
  std::vector<std::pair<Channel, std::vector<std::string>>> taken_;
};

TEST_F(SessionChannelsTest, PassMessagesOnInOrderHoweverLateTheyAreTaken) {
  constexpr size_t kMany = 300;
  for (size_t i = 0; i < kMany; ++i)
    session_->send_frames(Channel::iopub, {std::to_string(i), std::string(size_t{50} << 10, '\0')});
  SessionChannels other(std::move(own_), "key");
  std::vector<std::string> taken;
  other.watch(loop_, [&](Channel channel, const std::vector<std::string>& frames) {
    EXPECT_EQ(channel, Channel::iopub);
    EXPECT_EQ(frames.at(1).size(), size_t{50} << 10);
    EXPECT_EQ(frames.at(0), std::to_string(taken.size()));
    taken.push_back(frames.at(0));
  });
  loop_.run_until([&] { return taken.size() == kMany; });
  other.send_frames(Channel::shell, {"a", "b"});
  other.send_frames(Channel::control, {"c"});
  loop_.run_until([&] { return taken_.size() == 2; });
  EXPECT_THAT(taken_,
              ElementsAre(Pair(Channel::shell, ElementsAre("a", "b")), Pair(Channel::control, ElementsAre("c"))));
}

TEST_F(SessionChannelsTest, SendWhatIsLeftAtTheEndToWhoTakesIt) {
  constexpr size_t kSize = size_t{8} << 20;
  session_->send_frames(Channel::iopub, {std::string(kSize, 'x')});
  std::thread other([&] {
    EXPECT_EQ(protocol::receive_message(own_.get()).value().frames.at(0).size(), kSize);
    EXPECT_FALSE(protocol::receive_message(own_.get()));
  });
  session_->forget(loop_);
  other.join();
}

TEST_F(SessionChannelsTest, EndTheConnectionOfWhoSendsSomethingElse) {
  ASSERT_TRUE(write_all(own_.get(), std::string(100, '\xff')));
  loop_.run_until([&] { return is_ready(own_.get(), POLLIN); });
  std::string nothing;
  EXPECT_EQ(read_some(own_.get(), nothing), Reading::end);
  session_->send_frames(Channel::iopub, {"to nobody"});
}

}  // namespace
}  // namespace lockstep::shell::jupyter
