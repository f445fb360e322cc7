// Whether a text is a complete cell.
#include "shell/scripts/completeness.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

struct Case {
  const char* text;
  TextStatus status;
  int indent;
};

TEST(Completeness, ByBracketsQuotesCommentsAndConditions) {
  const Case cases[] = {
      {"", TextStatus::complete, 0},
      {"int x = 1;", TextStatus::complete, 0},
      {"void f() {", TextStatus::incomplete, 1},
      {"void f() { if (x", TextStatus::incomplete, 2},
      {"f(a[1], {2", TextStatus::incomplete, 2},
      {"f(1))", TextStatus::invalid, 0},
      {"f(1]", TextStatus::invalid, 0},
      {"} int x;", TextStatus::invalid, 0},
      {"/* begun", TextStatus::incomplete, 0},
      {"/* done */ // { not counted", TextStatus::complete, 0},
      {"auto s = \"{\";", TextStatus::complete, 0},
      {"auto s = \"\\\"{\";", TextStatus::complete, 0},
      {"auto c = '{';", TextStatus::complete, 0},
      {"auto c = '\\'';", TextStatus::complete, 0},
      {"auto n = 1'000'000;", TextStatus::complete, 0},
      {"auto s = R\"({ \" )\";", TextStatus::complete, 0},
      {"auto s = R\"x({ )\" ", TextStatus::incomplete, 0},
      {"auto s = R\"x({ )\" )x\";", TextStatus::complete, 0},
      {"auto s = u8R\"(\n", TextStatus::incomplete, 0},
      {"// http:/*", TextStatus::complete, 0},
      {"f(1); // it's {", TextStatus::complete, 0},
      {"// in C:\\data\\\nf(", TextStatus::complete, 0},  // a joined line of the comment
      {"// in C:\\data\\ \nf(", TextStatus::complete, 0},
      {"int x; \\\nf(", TextStatus::incomplete, 1},
      {"auto s = \"{\\\n{\";", TextStatus::complete, 0},
      {"auto s = R\"(\\\n)\";", TextStatus::complete, 0},
      {"#define OPEN /* {\n*/ {", TextStatus::complete, 0},
      {"#error don't {", TextStatus::complete, 0},
      {"#define IF(x) #if\n", TextStatus::complete, 0},
      {"#/**/if 1\n", TextStatus::incomplete, 0},
      {"#if 0 /* \n*/\n", TextStatus::incomplete, 0},
      {"/*/", TextStatus::incomplete, 0},
      {"R\"x", TextStatus::incomplete, 0},
      {"int a;\n%rank 0 it's a (\nint b;", TextStatus::complete, 0},  // magics end with their line
      {"f(1,\n%rank 0 (", TextStatus::incomplete, 2},
      {"auto s = \"no end\n;", TextStatus::complete, 0},  // an error, for the compiler to tell
      {"#define A(x) \\", TextStatus::incomplete, 0},
      {"#define A(x) \\\n", TextStatus::complete, 0},  // joined with an empty line
      {"#define A(x) \\\n \n", TextStatus::complete, 0},
      {"#define A(x) \\ ", TextStatus::incomplete, 0},
      {"#define A(x) \\\n  (x)", TextStatus::complete, 0},
      {"#define OPEN {", TextStatus::complete, 0},
      {"#if 1\nint x;", TextStatus::incomplete, 0},
      {"#ifdef A\n#else\n#endif", TextStatus::complete, 0},
      {"  #  ifndef A\n", TextStatus::incomplete, 0},
      {"int x = 1; \\", TextStatus::incomplete, 0},
      {"#include <vector>\nstd::vector<int> v{1, 2};", TextStatus::complete, 0},
  };
  for (const auto& [text, status, indent] : cases) {
    const auto answer = completeness(text);
    EXPECT_EQ(answer.status, status) << text;
    EXPECT_EQ(answer.indent, indent) << text;
  }
}

}  // namespace
}  // namespace lockstep::shell
