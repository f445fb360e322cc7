#include "shell/jupyter/message.h"

#include <gtest/gtest.h>

#include "protocol/error.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

TEST(JupyterMessage, ComesBackAsItWasSent) {
  MessageCodec sender("secret"), receiver("secret");
  Message message = sender.make("execute_request", {{"msg_id", "7"}}, {{"code", "1 + 1"}});
  message.identities = {"client", "second"};
  message.metadata = {{"deletedCells", json::array()}};
  message.buffers = {std::string("\0\1", 2)};
  const Message back = receiver.decode(sender.encode(message));
  EXPECT_EQ(back.identities, message.identities);
  EXPECT_EQ(back.type(), "execute_request");
  EXPECT_EQ(back.header, message.header);
  EXPECT_EQ(back.parent_header["msg_id"], "7");
  EXPECT_EQ(back.metadata, message.metadata);
  EXPECT_EQ(back.content["code"], "1 + 1");
  EXPECT_EQ(back.buffers, message.buffers);
}

// The digest of HMAC-SHA256 over known parts, by another implementation: Python's hmac.
TEST(JupyterMessage, TheSignatureIsHmacSha256) {
  MessageCodec codec("key");
  const std::vector<std::string> frames = {"<IDS|MSG>",
                                           "31b1b1e4a8b3b3e3e8a1d1b8f2d7a0c9a64ba6a9a8a6f2a1c9b6a1c7e4d1b0aa",
                                           R"({"msg_type":"a"})",
                                           "{}",
                                           "{}",
                                           "{}"};
  std::vector<std::string> signed_frames = frames;
  signed_frames[1] = "cb1d3df993c8d5e96e4430d55293bbc54ca70b0c2a603bb86f4a02e549c7cf09";
  EXPECT_THROW((void)codec.decode(frames), ChannelError);
  EXPECT_EQ(codec.decode(signed_frames).type(), "a");
}

TEST(JupyterMessage, WhatIsForgedRepeatedOrDamagedIsRefused) {
  MessageCodec sender("secret"), other("another"), receiver("secret");
  const auto frames = sender.encode(sender.make("execute_request", json::object(), {{"code", "x"}}));
  EXPECT_THROW((void)other.decode(frames), ChannelError);
  EXPECT_NO_THROW((void)receiver.decode(frames));
  EXPECT_THROW((void)receiver.decode(frames), ChannelError);  // a second time
  auto changed = sender.encode(sender.make("execute_request", json::object(), {{"code", "x"}}));
  changed[5] = R"({"code":"y"})";
  EXPECT_THROW((void)receiver.decode(changed), ChannelError);
  EXPECT_THROW((void)receiver.decode({}), ChannelError);
  EXPECT_THROW((void)receiver.decode({"client", "<IDS|MSG>", ""}), ChannelError);
  Message message = sender.make("x", json::object(), json::array());
  EXPECT_THROW((void)receiver.decode(sender.encode(message)), ChannelError);  // content that is no object
  message = sender.make("x", json::object(), json::object());
  message.header.erase("msg_type");
  EXPECT_THROW((void)receiver.decode(sender.encode(message)), ChannelError);
}

TEST(JupyterMessage, BytesThatAreNoTextAreReplaced) {
  MessageCodec codec("key");
  const auto frames = codec.encode(codec.make("stream", json::object(), {{"text", "a\xff"}}));
  EXPECT_EQ(json::parse(frames[5])["text"], "a\uFFFD");
}

}  // namespace
}  // namespace lockstep::shell::jupyter
