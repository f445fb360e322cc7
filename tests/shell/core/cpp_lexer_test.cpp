// Tokens of C++ text, read without a compiler. tests/compiler/cpp_lexer_test.cpp compares them with clang's.
#include "shell/scripts/cpp_lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::shell {
namespace {

using testing::ElementsAre;

/// The tokens without punctuation, `...` behind those that are not closed.
std::vector<std::string> spelled_tokens(std::string_view text) {
  std::vector<std::string> tokens;
  CppLexer lexer(text);
  while (const auto token = lexer.next())
    if (token->kind != CppToken::punctuation)
      tokens.push_back(std::string(token->text) + (token->is_closed ? "" : "..."));
  return tokens;
}

TEST(CppLexer, Literals) {
  EXPECT_THAT(spelled_tokens("f(\"a b\", u8'x', L\"\\\"\")"), ElementsAre("f", "\"a b\"", "u8'x'", "L\"\\\"\""));
  EXPECT_THAT(spelled_tokens("R\"(a\n\"b)\" u8R\"x()\")x\"_s R\"(\\\n)\""),
              ElementsAre("R\"(a\n\"b)\"", "u8R\"x()\")x\"_s", "R\"(\\\n)\""));
  EXPECT_THAT(spelled_tokens("1'000 0x1p-3 1e+7f .5 12_km 1..2 'c'_t 1'"),
              ElementsAre("1'000", "0x1p-3", "1e+7f", ".5", "12_km", "1..2", "'c'_t", "1", "'..."));
}

TEST(CppLexer, JoinedLines) {
  EXPECT_THAT(spelled_tokens("in\\\nt a; // b\\\nc\nd"), ElementsAre("in\\\nt", "a", "// b\\\nc", "d"));
  EXPECT_THAT(spelled_tokens("/\\\n/ a\nb /* *\\\n/ c \"x\\ \n\\\"y\" 1\\\n'0"),
              ElementsAre("/\\\n/ a", "b", "/* *\\\n/", "c", "\"x\\ \n\\\"y\"", "1\\\n'0"));
  EXPECT_EQ(CppLexer("in\\ \r\nt").next()->spelling(), "int");
}

TEST(CppLexer, WhatIsNotClosed) {
  EXPECT_THAT(spelled_tokens("\"a\nb 'c"), ElementsAre("\"a...", "b", "'c..."));
  for (const std::string open : {"/* a\n", "R\"(a\"", "R\"x", "u8R\"0123456789abcdefg(", "/*/"})
    EXPECT_THAT(spelled_tokens(open), ElementsAre(open + "...")) << open;
  EXPECT_TRUE(CppLexer("/*").next()->goes_on());
  EXPECT_FALSE(CppLexer("\"a").next()->goes_on());
}

TEST(CppLexer, Directives) {
  const auto in_directives = [](std::string_view text) {
    std::string found;
    CppLexer lexer(text);
    while (const auto token = lexer.next())
      if (token->in_directive) found += std::string(token->text) + "|";
    return found;
  };
  EXPECT_EQ(in_directives("  # include <a'b/*c> // d\ne # f\n/* g */ #define h \\\n i\nj"),
            "#|include|<a'b/*c>|// d|#|define|h|i|");
  EXPECT_EQ(in_directives("#define a /*\n*/ b\nc"), "#|define|a|/*\n*/|b|");
  EXPECT_EQ(in_directives("#if a < b > c\n"), "#|if|a|<|b|>|c|");
}

TEST(CppLexer, AnyBytes) {
  EXPECT_THAT(spelled_tokens(std::string_view("a\0b \xff\xfe \xc3\xa4 \"\xff\"", 13)),
              ElementsAre("a", "b", "\xff\xfe", "\xc3\xa4", "\"\xff\""));
  EXPECT_THAT(spelled_tokens(""), ElementsAre());
  EXPECT_THAT(spelled_tokens("\\"), ElementsAre());
  constexpr size_t kLong = 1 << 18;
  for (const std::string part : {"\\\n", "\\ ", "/*", "R\"(", "R\"a", "(", "'", "1'", "\"", "#", "\\\\\n", "\r"}) {
    std::string text;
    while (text.size() < kLong) text += part;
    CppLexer lexer(text);
    size_t end = 0;
    while (const auto token = lexer.next()) {
      ASSERT_LE(end, token->begin);
      ASSERT_LT(token->begin, token->end());
      end = token->end();
    }
    EXPECT_LE(end, text.size());
  }
}

TEST(CppLexer, WhetherThereIsCode) {
  EXPECT_FALSE(has_code("// a\n/* b\n */ \n"));
  EXPECT_TRUE(has_code("// a\n/* b"));
  EXPECT_TRUE(has_code("/* a */ ;"));
  EXPECT_FALSE(has_code("// a \\\nint k;"));
}

}  // namespace
}  // namespace lockstep::shell
