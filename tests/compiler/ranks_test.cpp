// Each rank sees the newest definition among the cells that ran on it.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

SessionSettings three() {
  SessionSettings settings;
  settings.ranks = 3;
  return settings;
}

TEST(Ranks, TheNewestDefinitionThatRanOnARankIsSeenThere) {
  CellSession session(three());
  EXPECT_EQ(session.run("int x = 1; int f() { return 10; }").text(), "");
  EXPECT_EQ(session.run("double x = 2.5; int f() { return 20; }", RankSet{1}).text(), "");
  const auto both = session.run("printf(\"%g %d\\n\", double(x), f());");
  EXPECT_EQ(both.compiled.objects.size(), 2u);
  EXPECT_EQ(both.text(), "[0] 1 10\n[1] 2.5 20\n[2] 1 10\n");
  const auto untouched = session.run("printf(\"same\\n\");");
  EXPECT_EQ(untouched.compiled.objects.size(), 1u);
  EXPECT_EQ(untouched.text(), "same\n");
  EXPECT_EQ(session.run("struct S { decltype(x) v = x; };").text(), "");
  EXPECT_EQ(session.run("S().v").text(), "[0] => 1\n[1] => 2.5\n[2] => 1\n");
  EXPECT_EQ(session.run("std::string x = \"new\";").text(), "");
  const auto one = session.run("x");
  EXPECT_EQ(one.compiled.objects.size(), 1u);
  EXPECT_EQ(one.text(), "=> \"new\"\n");
}

TEST(Ranks, NamesOfTheHeaderAreHiddenOnlyWhereTheyWereDefinedAgain) {
  CellSession session(three());
  EXPECT_EQ(session.run("int world_size = 77; int index = 5;", RankSet{1}).text(), "");
  EXPECT_EQ(session.run("world_size").text(), "[0] => 3\n[1] => 77\n[2] => 3\n");
  EXPECT_EQ(session.run("index == 5", RankSet{1}).text(), "=> true\n");
  EXPECT_EQ(session.run("*index(\"abc\", 'b')", RankSet{0}).text(), "=> 'b'\n");
  session.ask(protocol::Forget{{"world_size"}});
  EXPECT_EQ(session.run("world_size").text(), "=> 3\n");
}

TEST(Ranks, AMissingNameSaysWhereItIs) {
  CellSession session(three());
  EXPECT_EQ(session.run("printf(\"first\\n\");").text(), "first\n");
  EXPECT_EQ(session.run("int only = 5;", RankSet{0, 2}).text(), "");
  EXPECT_EQ(session.run("only", RankSet{0, 2}).text(), "=> 5\n");
  const auto missing = session.run("only + 1");
  EXPECT_EQ(missing.compiled.status, CompileStatus::error);
  EXPECT_NE(missing.compiled.rendered.find("'only' is not defined on rank 1: it was defined in cell 2, on ranks 0,2"),
            std::string::npos)
      << missing.compiled.rendered;
  EXPECT_TRUE(missing.compiled.objects.empty());
}

TEST(Ranks, ACellThatThrewOnOneRank) {
  CellSession session(three());
  EXPECT_EQ(session.run("int a = 1;\nint b = rank == 1 ? throw std::runtime_error(\"one\") : 7;\nint c = std::abs(-9);")
                .text(),
            "[0] [1] ! std::runtime_error: one\n[2] ");
  EXPECT_EQ(session.run("a").text(), "=> 1\n");
  EXPECT_EQ(session.run("b + c", RankSet{0, 2}).text(), "=> 16\n");
  const auto missing = session.run("b");
  EXPECT_EQ(missing.compiled.status, CompileStatus::error);
  EXPECT_NE(missing.compiled.rendered.find("on rank 1"), std::string::npos) << missing.compiled.rendered;
  const auto other = session.run("a + 1");
  EXPECT_EQ(other.compiled.objects.size(), 1u);
  EXPECT_EQ(other.text(), "=> 2\n");
  EXPECT_EQ(session.run("int b = 3;").text(), "");
  EXPECT_EQ(session.run("b").text(), "=> 3\n");
}

TEST(Ranks, CodeThatOnlyOneRankHasIsMadeAgainForOthers) {
  CellSession session(three());
  EXPECT_EQ(session.run("#include <deque>\nstd::deque<short> d{1, 2}; d.push_back(3); d.size()", RankSet{0}).text(),
            "=> 3\n");
  EXPECT_EQ(session.run("std::deque<short> e{1}; e.push_back(2); e.pop_front(); e.size()").text(), "=> 1\n");
}

TEST(Ranks, CodeThatOneRankHasUsedAgainIsMadeForOthers) {
  CellSession session(three());
  EXPECT_EQ(session
                .run("#include <list>\n#include <vector>\ntemplate <class T> T twice(T x) { return x + x; }\n"
                     "inline int three(int x) { return 3 * x; }\n"
                     "struct Base { virtual ~Base() = default; virtual int f() { return 1; } };\n"
                     "template <class T> struct Of : Base { static inline int made = 0; Of() { ++made; } int f() "
                     "override { return 2; } };")
                .text(),
            "");
  const std::string uses =
      "std::vector<std::list<short>> lists(2); lists[0].push_back(4); Of<short> of; "
      "printf(\"%d %d %d %d %d\\n\", twice(2), three(3), lists[0].front(), of.f(), Of<short>::made);";
  // Made on rank 0, used there again without being made, and then needed where it never was.
  EXPECT_EQ(session.run("{ " + uses + " }", RankSet{0}).text(), "4 9 4 2 1\n");
  EXPECT_EQ(session.run("{ /* again */ " + uses + " }", RankSet{0}).text(), "4 9 4 2 2\n");
  EXPECT_EQ(session.run("{ /* everywhere */ " + uses + " }").text(), "[0] 4 9 4 2 3\n[1] 4 9 4 2 1\n[2] 4 9 4 2 1\n");
  EXPECT_EQ(session.run("{ /* on two */ " + uses + " }", RankSet{0, 1}).text(), "[0] 4 9 4 2 4\n[1] 4 9 4 2 2\n");
  EXPECT_EQ(session.run("rank + 1", RankSet{0}).text(), "=> 1\n");
  EXPECT_EQ(session.run("rank + 2", RankSet{0}).text(), "=> 2\n");
  EXPECT_EQ(session.run("rank + 3").text(), "[0] => 3\n[1] => 4\n[2] => 5\n");
}

TEST(Ranks, DifferentVersionsOfACellGoOnSeparately) {
  CellSession session(three());
  EXPECT_EQ(session.run("using T = int;", RankSet{0, 1}).text(), "");
  EXPECT_EQ(session.run("using T = double;", RankSet{2}).text(), "");
  EXPECT_EQ(session.run("struct Pair { T a, b; T sum() const { return a + b; } };\nPair p{1, 2};").text(), "");
  EXPECT_EQ(session.run("p.sum() / 2").text(), "[0] => 1\n[1] => 1\n[2] => 1.5\n");
  EXPECT_EQ(session.run("T half(Pair q) { return q.sum() / 2; }\nhalf(p)").text(), "[0] => 1\n[1] => 1\n[2] => 1.5\n");
}

TEST(Ranks, ANamespaceThatRanksHaveForThemselvesIsOpenedAgainOnAll) {
  CellSession session(three());
  EXPECT_EQ(session.run("namespace util { int a = 1; }", RankSet{0}).text(), "");
  EXPECT_EQ(session.run("namespace util { int b = 2; }", RankSet{1}).text(), "");
  EXPECT_EQ(session.run("namespace util { int c = 3; namespace deep { int d = 4; } }").text(), "");
  EXPECT_EQ(session.run("util::c + util::deep::d").text(), "=> 7\n");
  EXPECT_EQ(session.run("util::a + util::c", RankSet{0}).text(), "=> 4\n");
  EXPECT_EQ(session.run("util::b + util::c", RankSet{1}).text(), "=> 5\n");
  EXPECT_EQ(session.run("namespace util::deep { int e = d + c; }").text(), "");
  EXPECT_EQ(session.run("using namespace util; deep::e + c").text(), "=> 10\n");
  EXPECT_EQ(session.run("util::a", RankSet{1}).compiled.status, CompileStatus::error);
  EXPECT_EQ(session.run("namespace in { inline namespace v1 { int a = 1; } }", RankSet{0}).text(), "");
  EXPECT_EQ(session.run("namespace in { inline namespace v1 { int a = 2; } }", RankSet{1, 2}).text(), "");
  EXPECT_EQ(session.run("namespace in { inline namespace v1 { int b = 10 * a; } }").text(), "");
  EXPECT_EQ(session.run("in::a + in::v1::b").text(), "[0] => 11\n[1] => 22\n[2] => 22\n");
}

TEST(Ranks, ADefinitionOnOneRankLeavesTheDeclarationToTheOthers) {
  CellSession session(three());
  EXPECT_EQ(session.run("struct Later; int later(int); template <class T> struct Of;").text(), "");
  EXPECT_EQ(
      session
          .run("struct Later { int a = 1; }; int later(int a) { return a; } template <class T> struct Of { T t; };",
               RankSet{0})
          .text(),
      "");
  EXPECT_EQ(session.run("Later* none = nullptr; int (*function)(int) = nullptr; Of<int>* of = nullptr;").text(), "");
  EXPECT_EQ(session.run("Later().a + later(1)", RankSet{0}).text(), "=> 2\n");
  EXPECT_EQ(session.run("none == nullptr && !of").text(), "=> true\n");
}

// A mode that is used for the first time hears of all cells before it.
TEST(Ranks, OptimisedAndDebuggableCellsAfterRanksDefinedTypesDifferently) {
  CellSession session(three());
  const std::string net =
      "struct Net { T v = 1; virtual ~Net() = default; virtual T get(); static T made; }; T Net::get() { return v + "
      "made; } "
      "T Net::made = [] { return T(0.5); }();\n"
      "Net net; T only = net.get(); template <class T> T half(T a) { return a / 2; }\n"
      "inline T twice(T a) { return 2 * a + only - only; } only += twice(half(net.get()));";
  EXPECT_EQ(session.run("using T = int; " + net, RankSet{0}).text(), "");
  EXPECT_EQ(session.run("using T = double; int more = 3; more += 1; " + net, RankSet{1, 2}).text(), "");
  protocol::Compile request;
  request.ranks = RankSet{0, 1, 2};
  for (const int optimize : {2, 1, 0, 0}) {
    for (const bool debug : {false, true}) {
      SCOPED_TRACE("-O" + std::to_string(optimize) + (debug ? " -g" : ""));
      request.optimize = optimize;
      request.debug = debug;
      EXPECT_EQ(session.run("1 + 1", request).text(), "=> 2\n");
      EXPECT_EQ(session.run("net.get() + twice(half(T(3)))", request).text(), "[0] => 3\n[1] => 4.5\n[2] => 4.5\n");
    }
  }
  // A function that only some ranks have, called in this mode on them; then the mode again on all.
  request.optimize = 2;
  EXPECT_EQ(
      session
          .run("int of_one = 4; int use() { return of_one; }\nstruct P { virtual int v() { return use(); } }; P p;",
               RankSet{1})
          .text(),
      "");
  protocol::Compile on_one = request;
  on_one.ranks = RankSet{1};
  EXPECT_EQ(session.run("p.v() + use()", on_one).text(), "=> 8\n");
  EXPECT_EQ(session.run("3 + 3", request).text(), "=> 6\n");
  session.ask(protocol::Forget{});
  request.optimize = 3;
  EXPECT_EQ(session.run("2 + 2", request).text(), "=> 4\n");
}

}  // namespace
}  // namespace lockstep::compiler_test
