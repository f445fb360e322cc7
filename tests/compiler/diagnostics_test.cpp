// What the compiler says of a cell that is wrong: places that the user knows, and no others.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Diagnostics, WhatThePreludeIncludesIsNoWayToAnError) {
  CellSession session;
  const auto abstract =
      session.run("struct Abstract { virtual void f() = 0; };\nauto made = std::make_unique<Abstract>();").compiled;
  EXPECT_EQ(abstract.status, CompileStatus::error);
  EXPECT_NE(abstract.rendered.find("cell 1:2:"), std::string::npos) << abstract.rendered;
  EXPECT_EQ(abstract.rendered.find("In file included"), std::string::npos) << abstract.rendered;
}

TEST(Diagnostics, OnesOwnHeadersAre) {
  CellSession session;
  // A path of the user's may end as that of the system's headers, which are shown as in their #include.
  std::filesystem::create_directories(session.directory() + "/usr/include");
  std::ofstream(session.directory() + "/usr/include/inner.h") << "inline int nothing = missing;\n";
  std::ofstream(session.directory() + "/usr/include/outer.h") << "#include \"inner.h\"\n";
  protocol::Compile request;
  request.directory = session.directory() + "/usr/include";
  const auto own = session.run("int before = 1;\n#include \"outer.h\"", std::move(request)).compiled;
  EXPECT_EQ(own.status, CompileStatus::error);
  EXPECT_NE(own.rendered.find("In file included from cell 1:2:"), std::string::npos) << own.rendered;
  EXPECT_NE(own.rendered.find("outer.h:1:"), std::string::npos) << own.rendered;
  EXPECT_NE(own.rendered.find(session.directory() + "/usr/include/inner.h:1:22: error"), std::string::npos)
      << own.rendered;
  EXPECT_EQ(own.rendered.find("cells.cpp"), std::string::npos) << own.rendered;
}

TEST(Diagnostics, AnErrorInsideOfATemplateIsAtTheLineThatLedThere) {
  CellSession session;
  session.run("template <typename T> auto twice(T t) {\n  return t.nope();\n}");
  const auto compiled = session.run("int before = 1;\n\ntwice(before);").compiled;
  ASSERT_FALSE(compiled.diagnostics.empty());
  EXPECT_EQ(compiled.diagnostics[0].severity, DiagnosticSeverity::error);
  EXPECT_EQ(compiled.diagnostics[0].file, "");
  EXPECT_EQ(compiled.diagnostics[0].line, 3);
  EXPECT_EQ(compiled.diagnostics[1].severity, DiagnosticSeverity::note);
  EXPECT_TRUE(compiled.rendered.starts_with("cell 2:3:1: error: ")) << compiled.rendered;
  EXPECT_NE(compiled.rendered.find("cell 1:2:11: note: here: "), std::string::npos) << compiled.rendered;
}

TEST(Diagnostics, AreShortAndThereIsMoreToSee) {
  CellSession session;
  const auto compiled = session.run("struct Item {} item;\nstd::cout << item;").compiled;
  EXPECT_LE(std::count(compiled.rendered.begin(), compiled.rendered.end(), '\n'), 42) << compiled.rendered;
  EXPECT_NE(compiled.rendered.find("%errors shows everything"), std::string::npos);
  EXPECT_GT(std::count(compiled.rendered_whole.begin(), compiled.rendered_whole.end(), '\n'), 200);
}

TEST(Diagnostics, NameTheHeaderThatIsMissing) {
  CellSession session;
  for (const auto& [code, header] : std::map<std::string, std::string>{{"std::regex r;", "<regex>"},
                                                                       {"std::async([] {});", "<future>"},
                                                                       {"auto l = std::latch(1);", "<latch>"},
                                                                       {"std::barrier<> b(1);", "<barrier>"}}) {
    const auto compiled = session.run(code).compiled;
    EXPECT_NE(compiled.rendered.find("did you mean to `#include " + header + "`?"), std::string::npos)
        << compiled.rendered;
  }
  // Not of the standard library, and of a class.
  for (const char* code : {"std::nothing_of_this_name(1);", "std::vector<int> v;\nv.regex();", "regexx x;"})
    EXPECT_EQ(session.run(code).compiled.rendered.find("#include"), std::string::npos) << code;
}

TEST(Diagnostics, WarnOfAValueThatIsThrownAway) {
  CellSession session;
  session.run("[[nodiscard]] int important() { return 1; }");
  EXPECT_NE(session.run("important();").compiled.rendered.find("warning: ignoring return value"), std::string::npos);
  EXPECT_EQ(session.run("important()").compiled.rendered, "");
}

TEST(Diagnostics, NameNothingThatTheCompilerMadeUp) {
  CellSession session;
  for (const char* code : {"return 5;", "rank = 5;", "world_size++;", "return rank;"}) {
    const auto compiled = session.run(code).compiled;
    EXPECT_EQ(compiled.status, CompileStatus::error);
    for (const char* ours : {"cell_", "worker/", "__asm__", "lockstep"})
      EXPECT_EQ(compiled.rendered.find(ours), std::string::npos) << compiled.rendered;
  }
}

}  // namespace
}  // namespace lockstep::compiler_test
