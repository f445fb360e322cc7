// Readers that are slow, stop reading, or go away.
#include "shell/text/text_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "shell/events/json_writer.h"
#include "shell/processes/launcher.h"

using namespace lockstep;
using namespace lockstep::shell;

namespace {

class TextOutputTest : public testing::Test {
 protected:
  void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }  // as the program does
};

/// A terminal of which nobody reads what is written.
struct Pty {
  Descriptor master{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
  Descriptor slave;
  Pty() {
    ::grantpt(master.get());
    ::unlockpt(master.get());
    slave = Descriptor(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  }
  std::string read() {
    std::string text(1 << 16, '\0');
    const ssize_t n = ::read(master.get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
};

constexpr size_t kMuch = 4 << 20;

}  // namespace

TEST_F(TextOutputTest, AnInterruptEndsAWriteToATerminalThatIsNotRead) {
  Pty pty;
  size_t dropped = 0;
  TextOutput output(pty.slave.get(), "the output", [&](size_t bytes) { dropped += bytes; });
  std::thread later([&] {
    pollfd written{pty.master.get(), POLLIN, 0};
    ::poll(&written, 1, -1);
    output.interrupt();
  });
  output.write(std::string(kMuch, 'x'), true);
  later.join();
  EXPECT_GT(dropped, kMuch / 2);
  EXPECT_FALSE(output.lost());
}

TEST_F(TextOutputTest, ATerminalThatKeepsUpLosesNothing) {
  Pty pty;
  size_t dropped = 0;
  TextOutput output(pty.slave.get(), "the output", [&](size_t bytes) { dropped += bytes; });
  output.interrupt();
  output.write("the cell's last words\n", true);
  EXPECT_EQ(pty.read(), "the cell's last words\r\n");
  EXPECT_EQ(dropped, 0u);
}

TEST_F(TextOutputTest, WhatIsNoOutputOfRanksIsWrittenAfterAnInterrupt) {
  Pty pty;
  size_t dropped = 0;
  TextOutput output(pty.slave.get(), "the output", [&](size_t bytes) { dropped += bytes; });
  output.interrupt();
  output.write(std::string(kMuch, 'x'), true);
  const size_t before = dropped;
  std::thread reader([&] {
    while (!pty.read().ends_with("end\r\n")) {
    }
  });
  output.write("end\n");
  reader.join();
  EXPECT_EQ(dropped, before);
}

TEST_F(TextOutputTest, APipeWhoseReaderTakesNothingDoesNotHoldAnInterruptedProgram) {
  Pipe pipe = make_pipe();
  TextOutput output(pipe.write.get());
  output.interrupt();
  testing::internal::CaptureStderr();
  output.write(std::string(kMuch, 'x'), true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: the output can't be written: its reader takes nothing\n");
  EXPECT_TRUE(output.lost());
}

TEST_F(TextOutputTest, ASlowPipeGetsAllOfItAfterAnInterrupt) {
  Pipe pipe = make_pipe();
  TextOutput output(pipe.write.get());
  size_t got = 0;
  std::thread reader([&] {
    char bytes[1 << 12];
    for (ssize_t n; got < kMuch && (n = ::read(pipe.read.get(), bytes, sizeof bytes)) > 0;)
      got += static_cast<size_t>(n);
  });
  output.interrupt();
  output.write(std::string(kMuch, 'x'), true);
  reader.join();
  EXPECT_EQ(got, kMuch);
  EXPECT_FALSE(output.lost());
}

TEST_F(TextOutputTest, AReaderThatIsGoneIsNoticedOnce) {
  Pipe pipe = make_pipe();
  pipe.read.reset();
  TextOutput output(pipe.write.get());
  testing::internal::CaptureStderr();
  output.write("one\n");
  output.write("two\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: the output can't be written: nobody reads it any more\n");
  EXPECT_TRUE(output.closed());
  EXPECT_TRUE(output.lost());
}

TEST_F(TextOutputTest, AJsonFileThatIsFullDoesNotThrow) {
  JsonWriter writer("/dev/full");
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(writer.take(MessageEvent{1, "text", nullptr}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "lockstep: --json /dev/full can't be written: No space left on device\n");
  EXPECT_TRUE(writer.output().lost());
  EXPECT_FALSE(writer.output().closed());
}
