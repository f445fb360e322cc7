// Where a statement may begin.
#include <gtest/gtest.h>

#include "shell/scripts/code_scanner.h"

namespace lockstep::shell {
namespace {

bool begins_after(std::initializer_list<std::string_view> lines) {
  std::string text;
  for (auto line : lines) text.append(line).append("\n");
  return CodeScanner(text + "more").may_begin(text.size());
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
  EXPECT_FALSE(begins_after({"int k; \\"}));
  EXPECT_FALSE(begins_after({"#define A /*", "*/ \\"}));
}

TEST(CodeScanner, QuotesAndSeparators) {
  EXPECT_TRUE(begins_after({"char c = '{';"}));
  EXPECT_TRUE(begins_after({"auto s = \"\\\"{\";"}));
  EXPECT_TRUE(begins_after({"int n = 1'000'000;"}));
  EXPECT_TRUE(begins_after({"auto c = u8'{';"}));
  EXPECT_TRUE(begins_after({"#define OPEN {", "int k;"}));
}

TEST(CodeScanner, TheCallThatIsOpen) {
  EXPECT_EQ(open_call("f(a[\"(\"], {1}"), 1u);
  EXPECT_EQ(open_call("f(')', R\"())\", /* ) */ \"x)"), 1u);
  EXPECT_EQ(open_call("%rank 0 f("), 9u);
  for (const char* none : {"", "f(a[", "f(1)", "for (int i = 0; ", "f(g{", "// f(", "f(1))"})
    EXPECT_FALSE(open_call(none));
}

TEST(CodeScanner, MagicsAreNoCode) {
  const std::string_view text = "%sync (\"\nf()";
  CodeScanner scanner(text);
  EXPECT_TRUE(scanner.may_begin(0));
  scanner.skip_magic(text.find('\n'));
  EXPECT_TRUE(scanner.may_begin(text.find('f')));
  EXPECT_EQ(scanner.next()->text, "f");
  EXPECT_FALSE(scanner.is_mismatched());
}

}  // namespace
}  // namespace lockstep::shell
