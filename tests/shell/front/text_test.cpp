#include "shell/text/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace lockstep::shell;
using testing::ElementsAre;

TEST(Text, CountsColumns) {
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("é✗▸"), 3);
  EXPECT_EQ(text_width("e\u0301"), 1);  // an accent of its own
  EXPECT_EQ(text_width("漢字"), 4);
  // Beyond the blocks that most terminals meet: an Egyptian hieroglyph's control, Tangut, Devanagari's vowel sign, a
  // Hangul vowel, Kana that are signs, an emoji of 2021.
  EXPECT_EQ(text_width("\U00013430\U00017000\u0941\u1161\U0001B000\U0001FAE0"), 6);
  EXPECT_EQ(text_width("\u0085"), 0);
  EXPECT_EQ(text_width("\033[1;31mred\033[0m"), 3);
  EXPECT_EQ(text_width("a\tb"), 9);
  EXPECT_EQ(text_width("\033]8;;http://x\alink\033]8;;\a"), 4);
}

TEST(Text, ShowsControlCharacters) {
  EXPECT_EQ(without_controls("plain\té\n漢\r\n😀"), "plain\té\n漢\n😀");
  EXPECT_EQ(without_controls(std::string_view("\0\a\r\033[2J\x7F", 8)), "^@^G^M^[[2J^?");
  EXPECT_EQ(without_controls("\u0085\u009b31m"), "\uFFFD\uFFFD31m");  // C1 as UTF-8
  EXPECT_EQ(without_controls("\x9b\xff"), "\uFFFD\uFFFD");              // and as bytes
  EXPECT_EQ(without_controls("\033[31mred\033[0m", true), "\033[31mred\033[0m");
  EXPECT_EQ(without_controls("\033[31;2Hred\033[", true), "^[[31;2Hred^[[");
}

TEST(Text, CutsToFit) {
  EXPECT_EQ(fitting("abcdef", 3), "abc");
  EXPECT_EQ(fitting("漢字", 3), "漢");
  EXPECT_EQ(fitting("\033[31mab\033[0m", 2), "\033[31mab\033[0m");
  EXPECT_EQ(fitting("abc", 0), "");
}

TEST(Text, FoldsLinesThatRepeat) {
  const std::vector<std::string> deep(94, "deep()");
  EXPECT_THAT(without_repeats(deep, "…"), ElementsAre("deep()", "… 93 times more"));
  EXPECT_THAT(
      without_repeats({"top()", "odd()", "even()", "odd()", "even()", "odd()", "even()", "odd()", "main()"}, "…"),
      ElementsAre("top()", "odd()", "even()", "… these 2 lines 2 times more", "odd()", "main()"));
  EXPECT_THAT(without_repeats({"a", "a", "b", "b"}, "…"), ElementsAre("a", "a", "b", "b"));  // no gain
  EXPECT_TRUE(without_repeats({}, "…").empty());
}

TEST(Text, WrapsAtBlanks) {
  EXPECT_THAT(wrapped("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("  one two three", 9), ElementsAre("  one two", "  three"));
  EXPECT_THAT(wrapped("averyveryverylongword and", 8), ElementsAre("averyveryverylongword", "and"));
  EXPECT_THAT(wrapped("a\n\nb", 8), ElementsAre("a", "", "b"));
  EXPECT_THAT(wrapped("one two three", 0), ElementsAre("one two three"));
}
