// Where a statement may begin.
#include <gtest/gtest.h>

#include "shell/scripts/code_scanner.h"

namespace lockstep::shell {
namespace {

bool begins_after(std::initializer_list<std::string_view> lines) {
  CodeScanner scanner;
  for (auto line : lines) scanner.take(line);
  return scanner.at_statement();
}

TEST(CodeScanner, AfterStatementsAndDefinitions) {
  EXPECT_TRUE(begins_after({}));
  EXPECT_TRUE(begins_after({"int k = 1;"}));
  EXPECT_TRUE(begins_after({"void f() {", "  g();", "}"}));
  EXPECT_TRUE(begins_after({"#include <vector>"}));
  EXPECT_TRUE(begins_after({"int k = 1;  // why"}));
  EXPECT_TRUE(begins_after({"/* a", "b */"}));
  EXPECT_TRUE(begins_after({"auto s = R\"(", "{ ( \"", ")\";"}));
}

TEST(CodeScanner, NotInsideOfAnything) {
  EXPECT_FALSE(begins_after({"int k = 10"}));
  EXPECT_FALSE(begins_after({"void f() {", "g();"}));
  EXPECT_FALSE(begins_after({"f(1;"}));
  EXPECT_FALSE(begins_after({"/* a"}));
  EXPECT_FALSE(begins_after({"auto s = R\"x(", ")\";"}));
  EXPECT_FALSE(begins_after({"#define A \\"}));
  EXPECT_FALSE(begins_after({"// a comment that goes on \\"}));
  EXPECT_FALSE(begins_after({"// and one with blanks after the backslash \\ \t"}));
}

TEST(CodeScanner, QuotesAndSeparators) {
  EXPECT_TRUE(begins_after({"char c = '{';"}));
  EXPECT_TRUE(begins_after({"auto s = \"\\\"{\";"}));
  EXPECT_TRUE(begins_after({"int n = 1'000'000;"}));
  EXPECT_TRUE(begins_after({"auto c = u8'{';"}));
  EXPECT_TRUE(begins_after({"#define OPEN {", "int k;"}));
}

}  // namespace
}  // namespace lockstep::shell
