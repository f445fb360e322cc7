// Symbols that are not mangled, and those that a cell would keep to itself: what a cell defines is what it gets, and
// what later cells find.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Symbols, CFunctionsOfTheUsersWinOverTheLibrarys) {
  check_transcript({
      {"extern \"C\" int abs(int) { return 42; }\nabs(-3)", "=> 42\n"},
      {"abs(-3)", "=> 42\n"},
      {"extern \"C\" { double sin(double) { return 9; } int atoi(const char*) { return 5; } int optind = 77; }", ""},
      {"printf(\"%g %d %d %g\\n\", sin(0.0), atoi(\"3\"), optind, std::cos(0.0));", "9 5 77 1\n"},
      {"long timezone = 5; timezone", "=> 5\n"},
      // A prototype first, in the same cell and in an earlier one.
      {"extern \"C\" int atol_like(int);\nextern \"C\" long atol(const char*);\n"
       "extern \"C\" long atol(const char* text) { return text[0]; }\natol(\"A\")",
       "=> 65\n"},
      {"extern \"C\" int re_comp_like(int); extern \"C\" int getloadavg(double*, int);", ""},
      {"extern \"C\" int getloadavg(double*, int n) { return n * 10; }", ""},
      {"getloadavg(nullptr, 7)", "=> 70\n"},
      {"extern \"C\" int getloadavg(double*, int n) { return n; }\ngetloadavg(nullptr, 7)", "=> 7\n"},
      {"extern \"C\" int twice(int);", ""},
      {"int use(int n) { return n; }\nextern \"C\" int twice(int n) { return 2 * use(n); }\ntwice(4)", "=> 8\n"},
      {"twice(5)", "=> 10\n"},
  });
}

// For a library that looks for a callback, and for dlsym.
TEST(Symbols, ACFunctionIsFoundByItsName) {
  check_transcript({
      {"#include <dlfcn.h>\nextern \"C\" int on_event_of_ours(int n) { return n + 1; }", ""},
      {"reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, \"on_event_of_ours\"))(4)", "=> 5\n"},
      {"extern \"C\" int value_of_ours = 6;\n*static_cast<int*>(dlsym(RTLD_DEFAULT, \"value_of_ours\"))", "=> 6\n"},
  });
}

TEST(Symbols, BindingsOfATupleAreTheCellsOwn) {
  check_transcript({
      {"extern \"C\" int taken() { return 3; }\nstd::pair<int, int> first(1, 2), second(10, 20);", ""},
      {"auto& [taken, index] = first;", ""},
      {"taken = 7; taken + index", "=> 9\n"},
      {"int older() { return taken; }", ""},
      {"auto& [taken, index] = second;\ntaken + index", "=> 30\n"},
      {"older()", "=> 7\n"},
      {"taken", "=> 10\n"},
      {"auto [y1, time] = std::tuple(1.5, std::string(\"x\"));", ""},
      {"time + std::to_string(int(y1))", "=> \"x1\"\n"},
  });
}

TEST(Symbols, HiddenOnesAreSeenByLaterCells) {
  check_transcript({
      {"__attribute__((visibility(\"hidden\"))) int hidden() { return 4; }", ""},
      {"hidden()", "=> 4\n"},
      {"#pragma GCC visibility push(hidden)\nint kept = 3; inline int in_line() { return 8; }\nstruct S { virtual int "
       "f() { return 6; } };\n"
       "#pragma GCC visibility pop",
       ""},
      {"kept + in_line() + S().f()", "=> 17\n"},
      {"in_line()", "=> 8\n"},
      {"#pragma comment(lib, \"nowhere\")\n1", "=> 1\n"},
  });
  CellSession session;
  const auto missing = session.run("__attribute__((visibility(\"hidden\"))) int nowhere();\nnowhere()");
  EXPECT_NE(missing.problem.find("nowhere"), std::string::npos) << missing.compiled.rendered << missing.problem;
}

TEST(Symbols, WhatCantBeLinkedIsSaidWithoutTheLinkersNames) {
  CellSession session;
  const auto twice = session.run(
      "asm(\".globl dup\\ndup: ret\\n\");\nextern \"C\" void other();\n"
      "__attribute__((tls_model(\"local-exec\"))) thread_local int t = 3;\nt");
  EXPECT_EQ(twice.compiled.status, CompileStatus::error) << twice.text();
  EXPECT_NE(twice.compiled.rendered.find("the cell's code can't be linked: "), std::string::npos)
      << twice.compiled.rendered;
  EXPECT_EQ(twice.compiled.rendered.find("/proc/"), std::string::npos) << twice.compiled.rendered;
  EXPECT_EQ(twice.compiled.rendered.find("ld.lld"), std::string::npos) << twice.compiled.rendered;
}

}  // namespace
}  // namespace lockstep::compiler_test
