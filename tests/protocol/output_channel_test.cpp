#include "protocol/output_channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace lockstep::protocol {
namespace {

TEST(OutputChannels, ComeBackFromTheirText) {
  auto channels = make_output_channels();
  const auto read = parse_output_channels(output_channels_text(channels));
  ASSERT_TRUE(read);
  for (size_t i = 0; i < channels.size(); ++i) {
    EXPECT_EQ((*read)[i].read, channels[i].read);
    EXPECT_EQ((*read)[i].write, channels[i].write);
    EXPECT_EQ((*read)[i].log, channels[i].log);
  }
  close_output_channels(channels);
}

TEST(OutputChannels, TextThatNamesNoneIsRefused) {
  auto channels = make_output_channels();
  const std::string text = output_channels_text(channels);
  for (const std::string& bad :
       {std::string(), std::string("1,2,3"), text + ",7", text + " ", "x" + text, "-" + text,
        text.substr(0, text.rfind(',')), std::string("1;2;3 4;5;6"), std::string("1,2,3,4,5,99999")})
    EXPECT_FALSE(parse_output_channels(bad)) << bad;
  close_output_channels(channels);
  EXPECT_FALSE(parse_output_channels(text)) << "closed";
}

TEST(OutputChannels, ReadingDoesNotWait) {
  auto channels = make_output_channels();
  char byte;
  EXPECT_EQ(::read(channels[0].read, &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  close_output_channels(channels);
}

}  // namespace
}  // namespace lockstep::protocol
