// Any name can be defined again; older code keeps what it was compiled with. A cell that fails leaves no trace.
#include <filesystem>
#include <fstream>

#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(Redefinition, AVariableAndAStructOfOneNameGoTogether) {
  check_transcript({
      {"struct box { int a = 3; }; int stat = 8;", ""},
      {"struct stat status; sizeof(status) > 0 && stat == 8", "=> true\n"},
      {"int box = 4;", ""},
      {"struct box full; full.a + box", "=> 7\n"},
      {"struct box { int b = 5; }; box().b", "=> 5\n"},
      {"double box() { return 1.5; }\nstruct box other; other.b + box()", "=> 6.5\n"},
  });
}

TEST(Redefinition, VariablesFunctionsTypes) {
  check_transcript({
      {"int y = 1; struct Net { int a = 1; int f() { return a; } }; Net n1; int twice(int a) { return 2 * a; }", ""},
      {"int old_twice(int a) { return twice(a); }\nprintf(\"%d %d %d\\n\", y, n1.f(), twice(3));", "1 1 6\n"},
      {"double y = 2.5; struct Net { double pad = 0, a = 7.5; double f() { return a; } }; int twice(int a) { return 20 "
       "* a; } Net n2;",
       ""},
      {"printf(\"%g %g %d %d %d\\n\", y, n2.f(), n1.f(), twice(3), old_twice(3));", "2.5 7.5 1 60 6\n"},
      {"std::vector<Net> nets(2); nets[1].f()", "=> 7.5\n"},
      {"std::string y = \"text\"; y", "=> \"text\"\n"},
      {"int y() { return 5; }\ny()", "=> 5\n"},
      {"struct y { int v = 6; }; y().v", "=> 6\n"},
      {"int y = 7; int use = y; y + use", "=> 14\n"},
      {"int w = y; int y = 8; w * 10 + y", "=> 78\n"},
      {"using Alias = int; Alias a1 = 1;", ""},
      {"using Alias = double; Alias a2 = 1.5; a1 + a2", "=> 2.5\n"},
      {"enum Mode { kOff, kOn }; kOn", "=> 1\n"},
      {"enum Mode { kNone, kOff, kOn }; kOn", "=> 2\n"},
      {"template <class T> T id(T a) { return a; }\nid(1)", "=> 1\n"},
      {"template <class T> T id(T a) { return a + 1; }\nid(1)", "=> 2\n"},
      {"template <class T> struct Wrap { T v; };\nWrap<int> w1{1};", ""},
      {"template <class T> struct Wrap { T v, u; };\nWrap<int> w2{1, 2}; w1.v + w2.u", "=> 3\n"},
      {"auto f = [](int a) { return a; }; f(1)", "=> 1\n"},
      {"auto f = [](int a) { return a + 10; }; f(1)", "=> 11\n"},
      {"auto [p, q] = std::pair<int, double>{1, 2.5};", ""},
      {"auto [p, q] = std::pair<double, int>{1.5, 2}; p + q", "=> 3.5\n"},
      {"namespace lib { int v = 1; int g() { return v; } struct S { int a = 1; }; }", ""},
      {"namespace lib { int v = 2; int g() { return v * 10; } struct S { int a = 3; }; }", ""},
      {"lib::g() + lib::S().a", "=> 23\n"},
      {"#define LIMIT 3\nLIMIT", "=> 3\n"},
      {"#define LIMIT 4\nLIMIT", "=> 4\n"},
      {"int rank = 77; rank", "=> 77\n"},
      {"rank + world_size", "=> 78\n"},
  });
}

TEST(Redefinition, OverloadSetsGrow) {
  check_transcript({
      {"const char* what(int) { return \"int\"; }", ""},
      {"const char* what(double) { return \"double\"; }", ""},
      {"const char* what(const std::string&) { return \"string\"; }", ""},
      {"printf(\"%s %s %s\\n\", what(1), what(1.0), what(std::string()));", "int double string\n"},
      {"const char* what(int) { return \"new int\"; }", ""},
      {"printf(\"%s %s\\n\", what(1), what(1.0));", "new int double\n"},
      {"const char* what(int renamed) { return renamed ? \"third\" : what(1.0); }\nwhat(0)", "=> \"double\"\n"},
      {"int what(double d) { return 4; }\nwhat(1.0)", "=> 4\n"},
      {"int what = 3; what", "=> 3\n"},
  });
}

TEST(Redefinition, ForwardDeclarationsAreCompleted) {
  check_transcript({
      {"struct Node; Node* make(); int value(Node* n); int later(int);", ""},
      {"struct Node { int v = 5; };", ""},
      {"Node* make() { return new Node; }\nint value(Node* n) { return n->v; }\nint later(int a) { return a + 1; }",
       ""},
      {"value(make())", "=> 5\n"},
      {"extern int shared;", ""},
      {"int shared = 4; shared", "=> 4\n"},
  });
}

TEST(Redefinition, AFailedCellLeavesNoTrace) {
  check_transcript({
      {"int x = 1;", ""},
      {"int x = 2; auto bad = undefined_thing;",
       "error: cell 2:1:23: error: use of undeclared identifier 'undefined_thing'"},
      {"x", "=> 1\n"},
      {"printf(\"boom\\n\"); oops;", "error: undeclared identifier 'oops'"},
      {"printf(\"fine\\n\");", "fine\n"},
      {"void foo() { int x = 5;", "error: expected '}'"},
      {"try { throw 1; } catch { 0; }", "error: expected '('"},
      {"struct Half { int a;", "error: expected '}'"},
      {"struct Half { int a = 2; }; Half().a", "=> 2\n"},
      {"#define BAD 1\nint q = nope;", "error: nope"},
      {"#ifdef BAD\n1\n#else\n2\n#endif", "=> 2\n"},
      {"template <class T> T inst(T a) { return a; }\ninst(1); oops;", "error: oops"},
      {"template <class T> T inst(T a) { return a + 1; }\ninst(1)", "=> 2\n"},
      {"auto f = [&]{ return nowhere; };", "error: nowhere"},
      {"auto f = [&]{ return x; }; f()", "=> 1\n"},
      {"} int z = 1;", "error: extraneous closing brace"},
      {")", "error: expected"},
      {"int x = \"text\";", "error: cannot initialize a variable of type 'int'"},
      {"int wrong(Half h) { return h.b; }", "error: no member named 'b' in 'Half'"},
      {"x", "=> 1\n"},
  });
}

TEST(Redefinition, DefaultArguments) {
  check_transcript({
      {"int f(int a, int b = 2) { return a + b; }\nf(1)", "=> 3\n"},
      {"int f(int a, int b = 3) { return a + b; }\nf(1)", "=> 4\n"},
      {"template <class T> T t(T a = 3) { return a; }\nt<int>()", "=> 3\n"},
      {"template <class T> T t(T a = 4) { return a; }\nt<int>()", "=> 4\n"},
      {"namespace ns { int g(int a = 1) { return a; } }\nns::g()", "=> 1\n"},
      {"namespace ns { int g(int a = 2) { return a; } }\nns::g()", "=> 2\n"},
      {"int d(int a, int b = 5);\nint d(int a, int b) { return a * b; }\nd(2)", "=> 10\n"},
      {"int d(int a, int b = 6) { return a * b; }\nd(2)", "=> 12\n"},
  });
}

TEST(Redefinition, HowAValueIsShown) {
  check_transcript({
      {"struct Q { int v = 3; };\nQ q;\nq", "=> Q{3}\n"},
      {"std::ostream& operator<<(std::ostream& out, const Q& q) { return out << \"Q(\" << q.v << \")\"; }", ""},
      {"q", "=> Q(3)\n"},
      {"std::ostream& operator<<(std::ostream& out, const Q& q) { return out << \"New(\" << q.v << \")\"; }", ""},
      {"std::vector<Q>{q}", "=> {New(3)}\n"},
  });
}

TEST(Redefinition, ThrowingCellHidesOnlyWhatDidNotComeToBe) {
  CellSession session;
  EXPECT_EQ(session.run("int a = 1;").text(), "");
  const auto thrown = session.run(
      "int b = std::stoi(\"2\");\nint a = b + 1;\nthrow std::runtime_error(\"stop\");\nint c = std::stoi(\"3\");\nint "
      "d = 4;\nint helper() { return 9; }");
  EXPECT_EQ(thrown.text(), "! std::runtime_error: stop\n");
  EXPECT_EQ(thrown.steps_done.at(0), 2);
  ASSERT_GE(thrown.compiled.objects.at(0).steps.size(), 3u);
  EXPECT_EQ(thrown.compiled.objects[0].steps[2].line, 3);
  EXPECT_EQ(session.run("a * 10 + b").text(), "=> 32\n");
  EXPECT_EQ(session.run("helper()").text(), "=> 9\n");
  EXPECT_NE(session.run("c").compiled.rendered.find("'c'"), std::string::npos);
  EXPECT_EQ(session.run("d").compiled.status, CompileStatus::error);
}

TEST(Redefinition, HeadersAreReadAgainWhenTheyChange) {
  CellSession session;
  const std::string folder = session.directory() + "/mine";
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
  };
  const auto run = [&](const std::string& text) {
    protocol::Compile request;
    request.directory = folder;
    return session.run(text, std::move(request)).text();
  };
  write("guarded.h",
        "#ifndef GUARDED_H\n#define GUARDED_H\ninline int version() { return 1; }\nstruct Config { int a = 1; "
        "};\n#endif\n");
  write("once.h", "#pragma once\n#include \"guarded.h\"\nstatic int once() { return version() * 10; }\n");
  EXPECT_EQ(run("#include \"guarded.h\"\n#include \"once.h\"\nversion() + once()"), "=> 11\n");
  EXPECT_EQ(run("#include \"once.h\"\nonce()"), "=> 10\n");
  write("guarded.h",
        "#ifndef GUARDED_H\n#define GUARDED_H\ninline int version() { return 2; }\nstruct Config { int a = 1, b = 22; "
        "};\n#endif\n");
  EXPECT_EQ(run("#include \"guarded.h\"\nversion() + Config().b"), "=> 24\n");
  EXPECT_EQ(run("#include \"once.h\"\nonce()"), "=> 20\n");
  EXPECT_EQ(run("version()"), "=> 2\n");
  EXPECT_NE(run("#include \"missing.h\"").find("'missing.h' file not found"), std::string::npos);
  write("missing.h", "inline int found() { return 3; }\n");
  EXPECT_EQ(run("#include \"missing.h\"\nfound()"), "=> 3\n");
}

}  // namespace
}  // namespace lockstep::compiler_test
