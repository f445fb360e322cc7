#include "shell/terminal/line_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace lockstep::shell;
using testing::ElementsAre;

namespace {

struct LineStream {
  LineBuffer buffer;
  std::vector<std::string> lines;

  LineStream& operator<<(std::string_view bytes) {
    buffer.append(bytes, [&](std::string_view line) { lines.emplace_back(line); });
    return *this;
  }
};

}  // namespace

TEST(LineBuffer, HandsOverWholeLines) {
  LineStream stream;
  stream << "loss " << "0.5\n\n  indented\nrest";
  EXPECT_THAT(stream.lines, ElementsAre("loss 0.5", "", "  indented"));
  EXPECT_EQ(stream.buffer.text(), "rest");
  EXPECT_EQ(stream.buffer.take(), "rest");
  EXPECT_TRUE(stream.buffer.empty());
}

TEST(LineBuffer, CarriageReturnOverwrites) {
  LineStream stream;
  stream << "epoch 1/3" << "\repoch 2/3" << "\repoch 3/3\n";
  EXPECT_THAT(stream.lines, ElementsAre("epoch 3/3"));
  stream << "100%\r9\n";
  EXPECT_EQ(stream.lines.back(), "900%");
  stream << "windows\r\n";
  EXPECT_EQ(stream.lines.back(), "windows");
}

TEST(LineBuffer, OverwritesCharactersNotBytes) {
  LineStream stream;
  stream << "é漢x\rab\n";
  EXPECT_EQ(stream.lines.back(), "abx");
  stream << "abc\r\xE6" << "\xBC" << "\xA2\n";  // a character in three pieces
  EXPECT_EQ(stream.lines.back(), "漢bc");
}

TEST(LineBuffer, BackspaceStepsBack) {
  LineStream stream;
  stream << "10%\b\b\b20%\n";
  EXPECT_EQ(stream.lines.back(), "20%");
  stream << "\b\bx\n";
  EXPECT_EQ(stream.lines.back(), "x");
}

TEST(LineBuffer, ErasesAndKeepsColours) {
  LineStream stream;
  stream << "a long line\r\033[Kshort\n";
  EXPECT_EQ(stream.lines.back(), "short");
  stream << "\033[31mred\033[0m\n";
  EXPECT_EQ(stream.lines.back(), "\033[31mred\033[0m");
  stream << "x\033[2J\033[10;10Hy\033[" << "31mz\n";  // moving about the screen is left out
  EXPECT_EQ(stream.lines.back(), "xy\033[31mz");
}

TEST(LineBuffer, TenThousandUpdatesStayOneLine) {
  LineStream stream;
  for (int i = 0; i < 10000; ++i) stream << "\rstep " << std::to_string(i);
  EXPECT_EQ(stream.buffer.text(), "step 9999");
  EXPECT_TRUE(stream.lines.empty());
}

TEST(LineBuffer, MemoryIsBoundedWithoutLineEnds) {
  LineStream stream;
  const std::string piece(1 << 16, 'x');
  size_t total = 0;
  for (int i = 0; i < 200; ++i) {
    stream << piece;
    ASSERT_LE(stream.buffer.text().size(), LineBuffer::kLongest + piece.size());
  }
  for (const std::string& line : stream.lines) total += line.size();
  EXPECT_EQ(total + stream.buffer.text().size(), 200 * piece.size());
}
