// `T(x)` at a prompt: a conversion, where x has a value and no semicolon follows; a declaration as in C++ otherwise.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Casts, WithoutASemicolonAVariableIsConvertedAndKept) {
  check_transcript({
      {"#include <span>\n"
       "int x = 5; std::vector<int> v{1, 2, 3}; std::string s = \"abc\"; auto t = torch::full({2}, 3);\n"
       "std::vector<std::vector<int>> m{{1, 2}, {3}}; int* p = &x; int f() { return 7; }",
       ""},
      {"int(x)", "=> 5\n"},
      {"int((x))", "=> 5\n"},
      {"unsigned(x)", "=> 5\n"},
      {"decltype(x)(x)", "=> 5\n"},
      {"std::vector<int>(v)", "=> {1, 2, 3}\n"},
      {"std::string(s)", "=> \"abc\"\n"},
      {"::std::string(s)", "=> \"abc\"\n"},
      {"torch::Tensor(t).sum().item<int>()", "=> 6\n"},
      {"std::span<int>(m[0])", "=> {1, 2}\n"},
      {"std::vector<int>(v)[1]", "=> 2\n"},
      {"int(*p)", "=> 5\n"},
      {"std::uintptr_t(&x) == std::uintptr_t(p)", "=> true\n"},
      {"bool(std::uintptr_t(&x))", "=> true\n"},
      {"double(f())", "=> 7\n"},
      {"long(f())", "=> 7\n"},
      {"using namespace std; int here = 65; string(s)", "=> \"abc\"\n"},
      {"char(here)", "=> 'A'\n"},
      {"int now = 8; long(now)", "=> 8\n"},
      {"struct Add { int a; explicit Add(int a) : a(a) {} int operator()(int b) { return a + b; } }; Add add(3);", ""},
      {"Add(add)(x)", "=> 8\n"},
      {"namespace box { int held = 6; }\nint(box::held)", "=> 6\n"},
      {"int(x), x + 1", "=> 6\n"},
      // Nothing of it was lost.
      {"printf(\"%d %zu %s %d %zu %d %d\\n\", x, v.size(), s.c_str(), t.defined(), m.size(), f(), add.a);",
       "5 3 abc 1 2 7 3\n"},
  });
}

// Clang takes `name(name` outside of a function for a deduction guide.
TEST(Casts, TemplateArgumentsAreDeduced) {
  check_transcript({
      {"int a = 1; std::string b = \"b\"; std::vector<int> v{3, 4}; std::mutex m;", ""},
      {"std::pair(a, b).second", "=> \"b\"\n"},
      {"std::get<0>(std::tuple(a, 2))", "=> 1\n"},
      {"std::vector(v.begin(), v.end())", "=> {3, 4}\n"},
      {"std::vector(v)", "=> {3, 4}\n"},
      {"std::pair(a, 2);\na", "=> 1\n"},
      {"std::vector(v).size()", "=> 2\n"},
      {"std::optional(v)->size()", "=> 2\n"},
      {"template <class T> struct Box { T held; };\nBox(const char*) -> Box<std::string>;\nBox(\"x\").held.size()",
       "=> 1\n"},
      {"struct Net { int n; Net(int n); ~Net(); };\nNet::Net(int n) : n(n) {}\nNet::~Net() { printf(\"gone\\n\"); }",
       ""},
      {"Net(a).n", "=> 1\ngone\n"},
  });
}

TEST(Casts, WhatDeclaresMoreThanANameIsADeclaration) {
  check_transcript({
      {"int x = 5;", ""},
      {"int (most)(int a, int b) { return a > b ? a : b; }", ""},
      {"int (most)(int a, int b) { return a > b ? b : a; }", ""},
      {"most(1, 2)", "=> 1\n"},
      {"int(x) = 9", ""},
      {"x", "=> 9\n"},
      {"int(fresh)", ""},
      {"fresh", "=> 0\n"},
  });
  CellSession session;
  ASSERT_EQ(session.run("int x = 5;").text(), "");
  const auto declared = session.run("int(x);\nx");
  EXPECT_EQ(declared.text(), "=> 0\n");
  EXPECT_NE(declared.compiled.rendered.find("1:5: warning: 'x' is declared again, and its value is gone"),
            std::string::npos)
      << declared.compiled.rendered;
  EXPECT_EQ(session.run("long(y);").compiled.rendered, "");
}

}  // namespace
}  // namespace lockstep::compiler_test
