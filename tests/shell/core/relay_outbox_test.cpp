// What goes to a relay: in its order, files in pieces, and what is urgent before the pieces that wait.
#include "shell/jobs/relay_outbox.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/pipe_channel.h"
#include "shell/jobs/relay_messages.h"

namespace lockstep::shell {
namespace {

std::string wire(const ToRelay& message) {
  return protocol::wire_bytes({.header = protocol::encode_variant(message), .frames = {}});
}

class Outbox : public ::testing::Test {
 protected:
  Outbox() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ::signal(SIGPIPE, SIG_IGN);  // as the shell does
    relay_ = Descriptor(ends[1]);
    set_nonblocking(relay_.get());
    outbox_.open(Descriptor(ends[0]));
  }

  /// Returns what has come to the relay, a word a message; a piece of a file is answered where `takes`.
  std::vector<std::string> come(bool takes) {
    std::vector<std::string> words;
    for (bool goes_on = true; goes_on;) {
      std::string bytes;
      while (read_some(relay_.get(), bytes) == Reading::bytes) {
      }
      goes_on = !bytes.empty();
      arriving_.append(bytes);
      while (auto message = arriving_.next()) {
        const auto decoded = protocol::decode_variant<ToRelay>(message->header);
        if (const auto* kill = std::get_if<KillRank>(&decoded)) words.push_back("kill " + std::to_string(kill->rank));
        if (const auto* ping = std::get_if<Ping>(&decoded)) words.push_back("ping " + std::to_string(ping->number));
        if (const auto* piece = std::get_if<PutFile>(&decoded)) {
          words.push_back(piece->is_last ? "end of " + piece->name : "piece");
          file_ += message->frames.at(0);
          if (takes) outbox_.taken();
        }
      }
      loop_.run_once();
    }
    return words;
  }

  EventLoop loop_;
  RelayOutbox outbox_{loop_};
  Descriptor relay_;
  protocol::MessageAssembler arriving_;
  std::string file_;
};

std::shared_ptr<const std::string> file_of(size_t pieces) {
  std::string bytes;
  for (size_t i = 0; i < pieces * RelayOutbox::kPiece - 1; ++i) bytes += static_cast<char>(i * 7 + i / 251);
  return std::make_shared<const std::string>(std::move(bytes));
}

TEST_F(Outbox, AFileArrivesWholeBetweenItsNeighbours) {
  const auto file = file_of(9);
  outbox_.push(wire(Ping{1}));
  outbox_.push_file("cell", file);
  outbox_.push(wire(Ping{2}));
  const auto words = come(true);
  ASSERT_EQ(words.size(), 11u);
  EXPECT_EQ(words.front(), "ping 1");
  EXPECT_EQ(words[9], "end of cell");
  EXPECT_EQ(words.back(), "ping 2");
  EXPECT_EQ(file_, *file);
}

TEST_F(Outbox, AnEmptyFileIsOne) {
  outbox_.push_file("nothing", std::make_shared<const std::string>());
  EXPECT_EQ(come(true), (std::vector<std::string>{"end of nothing"}));
}

TEST_F(Outbox, WhatIsUrgentComesBeforeThePiecesThatWait) {
  outbox_.push_file("cell", file_of(9));
  outbox_.push(wire(Ping{1}));
  EXPECT_EQ(come(false), (std::vector<std::string>(RelayOutbox::kPieces, "piece")));  // the relay has not taken them
  EXPECT_EQ(outbox_.waiting(), -1);
  outbox_.push(wire(KillRank{3}), /*is_urgent=*/true);
  outbox_.push(wire(KillRank{4}), /*is_urgent=*/true);
  EXPECT_EQ(come(false), (std::vector<std::string>{"kill 3", "kill 4"}));
  for (int i = 0; i < RelayOutbox::kPieces; ++i) outbox_.taken();
  const auto rest = come(true);
  ASSERT_EQ(rest.size(), 6u);
  EXPECT_EQ(rest.back(), "ping 1");
}

TEST_F(Outbox, WhatIsUrgentDoesNotOvertakeMessages) {
  while (outbox_.waiting() < 0) outbox_.push(wire(Ping{1}));  // until nothing more can be written
  outbox_.push(wire(Ping{2}));
  outbox_.push(wire(KillRank{3}), /*is_urgent=*/true);
  const auto words = come(true);
  ASSERT_GE(words.size(), 2u);
  EXPECT_EQ(words[words.size() - 2], "ping 2");
  EXPECT_EQ(words.back(), "kill 3");
}

TEST_F(Outbox, ARelayThatHasGoneTakesNothing) {
  relay_.reset();
  outbox_.push_file("cell", file_of(9));
  outbox_.push(wire(Ping{1}));
  EXPECT_EQ(outbox_.waiting(), -1);
  outbox_.close();
  outbox_.push(wire(Ping{2}));
  EXPECT_FALSE(outbox_.is_open());
}

}  // namespace
}  // namespace lockstep::shell
