#include "compiler/completeness.h"

#include <gtest/gtest.h>

namespace lockstep::compiler {
namespace {

struct Case {
  const char* text;
  const char* status;
  int indent;
};

TEST(Completeness, ByBracketsQuotesCommentsAndConditions) {
  const Case cases[] = {
      {"", "complete", 0},
      {"int x = 1;", "complete", 0},
      {"void f() {", "incomplete", 1},
      {"void f() { if (x", "incomplete", 2},
      {"f(a[1], {2", "incomplete", 2},
      {"f(1))", "invalid", 0},
      {"f(1]", "invalid", 0},
      {"} int x;", "invalid", 0},
      {"/* begun", "incomplete", 0},
      {"/* done */ // { not counted", "complete", 0},
      {"auto s = \"{\";", "complete", 0},
      {"auto s = \"\\\"{\";", "complete", 0},
      {"auto c = '{';", "complete", 0},
      {"auto c = '\\'';", "complete", 0},
      {"auto n = 1'000'000;", "complete", 0},
      {"auto s = R\"({ \" )\";", "complete", 0},
      {"auto s = R\"x({ )\" ", "incomplete", 0},
      {"auto s = R\"x({ )\" )x\";", "complete", 0},
      {"auto s = u8R\"(\n", "incomplete", 0},
      {"auto s = \"no end\n;", "complete", 0},  // an error, for the compiler to tell
      {"#define A(x) \\", "incomplete", 0},
      {"#define A(x) \\\n", "incomplete", 0},
      {"#define A(x) \\\n  (x)", "complete", 0},
      {"#define OPEN {", "complete", 0},
      {"#if 1\nint x;", "incomplete", 0},
      {"#ifdef A\n#else\n#endif", "complete", 0},
      {"  #  ifndef A\n", "incomplete", 0},
      {"int x = 1; \\", "incomplete", 0},
      {"#include <vector>\nstd::vector<int> v{1, 2};", "complete", 0},
  };
  for (const auto& [text, status, indent] : cases) {
    const auto answer = completeness(text);
    EXPECT_EQ(answer.status, status) << text;
    EXPECT_EQ(answer.indent, indent) << text;
  }
}

}  // namespace
}  // namespace lockstep::compiler
