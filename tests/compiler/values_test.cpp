// The values of cells, as far as the compiler is concerned: what does not compile when it is shown, the types of what
// is kept for `_7`, and what is taken back. How values look is tested with the worker.
#include "tests/compiler/transcript.h"

namespace lockstep::compiler_test {
namespace {

TEST(ShownValues, ThatDoNotCompileDoNotCostTheCell) {
  check_transcript({
      {"struct Odd {}; template <typename T> std::ostream& operator<<(std::ostream& s, const T& t)\n"
       "  requires std::same_as<T, Odd> { return s << t.nowhere; }\nint before = 1;",
       ""},
      {"before = 2; Odd()", "=> <Odd>\n"},
      {"std::pair(1, Odd())", "=> <std::pair<int, Odd>>\n"},
      {"before", "=> 2\n"},
      {"Odd() + 1", "error: invalid operands"},
      {"std::set<int> set; set.insert(3)", "=> (<iterator to int>, true)\n"},
      {"struct Plain { int x = 1; };\nstd::pair{1, Plain{}}", "=> (1, Plain{1})\n"},
      {"[](auto x) { return x.nowhere(); }", "=> <lambda>\n"},
      {"struct Comma {}; int operator,(Comma, int) { return 1; }\nComma()", "=> Comma{}\n"},
  });
}

TEST(ShownValues, SayWhyTheyAreNotShown) {
  CellSession session;
  const auto outcome = session.run(
      "struct Odd {}; template <typename T> std::ostream& operator<<(std::ostream& s, const T& t)\n"
      "  requires std::same_as<T, Odd> { return s << t.nowhere; }\nOdd()");
  ASSERT_TRUE(outcome.ok()) << outcome.compiled.rendered;
  EXPECT_NE(outcome.compiled.rendered.find("no member named 'nowhere' in 'Odd'"), std::string::npos)
      << outcome.compiled.rendered;
}

// The hosts of these tests keep nothing; that a rank is asked for the value shows that its type was known.
TEST(KeptValues, AreDeclaredWhereTheyAreMentioned) {
  check_transcript({
      {"40 + 2", "=> 42\n"},
      {"int after = _1 * 2;", "! std::out_of_range: nothing is kept\n"},
      {"_3", "error: the value that cell 3 has shown: there is none"},
      {"_", "! std::out_of_range: nothing is kept\n"},
      {"struct Local { int x; };\nLocal{3}", "=> Local{3}\n"},
      {"_5.y", "error: no member named 'y' in 'Local'"},
      {"_.x", "! std::out_of_range: nothing is kept\n"},
      {"auto [_, second] = std::pair(1, 2);\n_ + second", "=> 3\n"},
      {"_ + 1", "=> 2\n"},
      {"using namespace std::placeholders; std::bind(std::minus<int>(), _2, _1)(1, 3)", "=> 2\n"},
      {"std::bind(std::minus<int>(), _2, _1)(1, 4)", "=> 3\n"},
  });
}

TEST(Undo, GivesBackWhatACellHasReplaced) {
  CellSession session;
  check_transcript(session, {
                                {"int x = 1; int f() { return 1; }", ""},
                                {"double x = 2.5; int g = 7;", ""},
                                {"x", "=> 2.5\n"},
                            });
  session.ask(protocol::Forget{.names = {}, .undo = 2});
  check_transcript(session, {
                                {"x + f()", "=> 2\n"},
                                {"g", "error: undeclared identifier 'g'"},
                                {"int g = 8; g", "=> 8\n"},
                            });
}

}  // namespace
}  // namespace lockstep::compiler_test
