// What the compiler says of a cell that is wrong: places that the user knows, and no others.
#include <filesystem>
#include <fstream>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Diagnostics, WhatThePreludeIncludesIsNoWayToAnError) {
  CellSession session;
  const auto abstract =
      session.run("struct Abstract { virtual void f() = 0; };\nauto made = std::make_unique<Abstract>();").compiled;
  EXPECT_EQ(abstract.status, "error");
  EXPECT_NE(abstract.rendered.find("cell 1:2:"), std::string::npos) << abstract.rendered;
  EXPECT_EQ(abstract.rendered.find("In file included"), std::string::npos) << abstract.rendered;
}

TEST(Diagnostics, OnesOwnHeadersAre) {
  CellSession session;
  std::filesystem::create_directories(session.directory() + "/mine");
  std::ofstream(session.directory() + "/mine/inner.h") << "inline int nothing = missing;\n";
  std::ofstream(session.directory() + "/mine/outer.h") << "#include \"inner.h\"\n";
  protocol::Compile request;
  request.directory = session.directory() + "/mine";
  const auto own = session.run("int before = 1;\n#include \"outer.h\"", std::move(request)).compiled;
  EXPECT_EQ(own.status, "error");
  EXPECT_NE(own.rendered.find("In file included from cell 1:2:"), std::string::npos) << own.rendered;
  EXPECT_NE(own.rendered.find("outer.h:1:"), std::string::npos) << own.rendered;
  EXPECT_NE(own.rendered.find("inner.h:1:22: error"), std::string::npos) << own.rendered;
  EXPECT_EQ(own.rendered.find("cells.cpp"), std::string::npos) << own.rendered;
}

}  // namespace
}  // namespace lockstep::compiler_test
