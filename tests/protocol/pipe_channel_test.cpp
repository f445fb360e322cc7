#include "protocol/pipe_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "protocol/error.h"
#include "protocol/read_json.h"

namespace lockstep::protocol {
namespace {

struct Pair {
  int ends[2];
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0); }
  ~Pair() {
    close_end(0);
    close_end(1);
  }
  void close_end(int i) {
    if (ends[i] >= 0) ::close(std::exchange(ends[i], -1));
  }
};

TEST(PipeChannel, HeaderAndFramesArriveAsSent) {
  Pair pair;
  const std::string large(3 << 20, '\x7f'), binary("\0\x01\n", 3);
  std::thread sender([&] { send_message(pair.ends[0], {{{"kind", "x"}}, {binary, "", large}}); });
  const auto message = receive_message(pair.ends[1]);
  sender.join();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->header["kind"], "x");
  EXPECT_EQ(message->frames, (std::vector<std::string>{binary, "", large}));
}

TEST(PipeChannel, TextThatIsNotUtf8DoesNotStopAHeader) {
  Pair pair;
  send_message(pair.ends[0], {{{"text", "a\xff"}}, {}});
  EXPECT_EQ(receive_message(pair.ends[1])->header["text"], "a\xef\xbf\xbd");
}

TEST(PipeChannel, EndBetweenMessagesIsNoErrorEndWithinOneIs) {
  Pair pair;
  send_message(pair.ends[0], {{{"a", 1}}, {}});
  const uint32_t frames = 1;
  ASSERT_EQ(::write(pair.ends[0], &frames, sizeof frames), ssize_t(sizeof frames));
  pair.close_end(0);
  EXPECT_TRUE(receive_message(pair.ends[1]));
  EXPECT_THROW(receive_message(pair.ends[1]), ChannelError);
  EXPECT_FALSE(receive_message(pair.ends[1]));
}

TEST(PipeChannel, NoiseIsRefusedBeforeMemoryIsTaken) {
  Pair pair;
  const std::string noise(64, '\xff');
  ASSERT_EQ(::write(pair.ends[0], noise.data(), noise.size()), ssize_t(noise.size()));
  EXPECT_THROW(receive_message(pair.ends[1]), ChannelError);
}

TEST(MessageAssembler, MessagesComeWholeHoweverTheirBytesArrive) {
  std::string bytes;
  for (int i = 0; i < 3; ++i)
    bytes += wire_bytes({{{"number", i}}, {std::string(static_cast<size_t>(i) * 1000, 'x'), "", "end"}});
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}, bytes.size()}) {
    MessageAssembler assembler;
    int count = 0;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      assembler.append(std::string_view(bytes).substr(at, piece));
      while (const auto message = assembler.next()) {
        EXPECT_EQ(message->header.at("number"), count);
        ASSERT_EQ(message->frames.size(), 3u);
        EXPECT_EQ(message->frames[0].size(), static_cast<size_t>(count) * 1000);
        EXPECT_EQ(message->frames[2], "end");
        ++count;
      }
    }
    EXPECT_EQ(count, 3) << "in pieces of " << piece;
  }
}

TEST(MessageAssembler, NoiseIsRefused) {
  MessageAssembler assembler;
  assembler.append("this is no message");
  EXPECT_THROW((void)assembler.next(), ChannelError);
}

// nlohmann::json copies by recursion, so who passes such a header on would be ended by it.
TEST(MessageAssembler, AHeaderThatIsNestedTooDeeplyIsRefused) {
  const auto bytes = [](size_t depth) {
    const std::string list = std::string(depth, '[') + std::string(depth, ']');
    const std::string header = R"({"text": "[[{\"[", "list": )" + list + "}";
    std::string wire = wire_bytes({nlohmann::json(), {}});
    const auto size = static_cast<uint64_t>(header.size());
    wire.replace(sizeof(uint32_t), sizeof size, reinterpret_cast<const char*>(&size), sizeof size);
    return wire.substr(0, sizeof(uint32_t) + sizeof size) + header;
  };
  MessageAssembler assembler;
  assembler.append(bytes(kDeepestJson - 1));
  EXPECT_TRUE(assembler.next());
  for (const size_t depth : {kDeepestJson, size_t{1'000'000}}) {
    MessageAssembler of_deeper;
    of_deeper.append(bytes(depth));
    EXPECT_THROW((void)of_deeper.next(), ChannelError) << depth;
  }
}

TEST(PipeChannel, SendingToAClosedEndThrowsRatherThanKills) {
  Pair pair;
  pair.close_end(1);
  EXPECT_THROW(send_message(pair.ends[0], {{{"a", 1}}, {}}), ChannelError);
}

}  // namespace
}  // namespace lockstep::protocol
