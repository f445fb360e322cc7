#include "protocol/utf8.h"

#include <gtest/gtest.h>

using namespace lockstep;

TEST(Utf8, FindsWhatIsNone) {
  for (const char* good : {"", "a", "plain, é, 漢, 😀"}) EXPECT_EQ(find_invalid_utf8(good), std::nullopt) << good;
  EXPECT_EQ(find_invalid_utf8("a\xFFz"), 1u);
  EXPECT_EQ(find_invalid_utf8("ab\xC3"), 2u);             // cut off
  EXPECT_EQ(find_invalid_utf8("\xE2\x82"), 0u);           // cut off
  EXPECT_EQ(find_invalid_utf8("\x80"), 0u);               // a continuation of nothing
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);           // too long a form
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);       // too long a form
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);       // half of a surrogate pair
  EXPECT_EQ(find_invalid_utf8("\xF5\x80\x80\x80"), 0u);   // beyond Unicode
}

TEST(Utf8, ACharacterThatIsCutOffMayGoOn) {
  EXPECT_EQ(unfinished_utf8("a\xE2\x82"), 2u);
  EXPECT_EQ(unfinished_utf8("a\xE2\x82\xAC"), 0u);
  EXPECT_EQ(unfinished_utf8("\xFF"), 0u);
  EXPECT_EQ(unfinished_utf8(""), 0u);
}

TEST(Utf8, WhatIsWrittenIsRead) {
  for (const char32_t code : {U'a', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xFFFF', U'\x10000', U'\x10FFFF'}) {
    std::string text;
    append_utf8(text, code);
    EXPECT_EQ(first_character(text).code, code);
    EXPECT_EQ(first_character(text).bytes, text.size());
    EXPECT_EQ(character_length(text[0]), text.size());
  }
  for (const char32_t none : {char32_t{0xD800}, char32_t{0x110000}, char32_t{0xFFFFFFFF}}) {
    std::string text;
    append_utf8(text, none);
    EXPECT_EQ(text, "\xEF\xBF\xBD");
  }
}
