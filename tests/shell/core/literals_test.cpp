// Where literals begin and end.
#include "shell/scripts/literals.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

/// The literal at the first quote of `text`; empty where there is none, `...` behind it where it is not closed.
std::string literal_in(std::string_view text) {
  const size_t i = text.find_first_of("\"'");
  const auto literal = literal_at(text, i);
  if (!literal) return "";
  return std::string(text.substr(i, literal->end - i)) + (literal->is_closed ? "" : "...");
}

TEST(Literals, StringsAndCharacters) {
  EXPECT_EQ(literal_in("f(\"a b\", 1)"), "\"a b\"");
  EXPECT_EQ(literal_in("x == '\\'' ? 1 : 2"), "'\\''");
  EXPECT_EQ(literal_in("u8'x'"), "'x'");
  EXPECT_EQ(literal_in("\"a \\\" b\" c"), "\"a \\\" b\"");
  EXPECT_EQ(literal_in("'\"'"), "'\"'");
  EXPECT_EQ(literal_in("return'x'"), "'x'");
  EXPECT_EQ(literal_in("R\"(a \" b)\" c"), "\"(a \" b)\"");
}

TEST(Literals, WhatIsNone) {
  EXPECT_EQ(literal_in("1'000'000"), "");
  EXPECT_EQ(literal_in("0x'f"), "");
  EXPECT_EQ(literal_in("don't"), "");
  EXPECT_FALSE(literal_at("abc", 1));
}

TEST(Literals, WhatIsNotClosed) {
  EXPECT_EQ(literal_in("f(\"a b"), "\"a b...");
  EXPECT_EQ(literal_in("\"a\\"), "\"a\\...");
  EXPECT_EQ(literal_in("\""), "\"...");
}

}  // namespace
}  // namespace lockstep::shell
